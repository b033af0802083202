// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/fair_queue.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::daemon {

void FairQueue::push(Id id, Client client) {
    std::deque<Id>& own = waiting_[client];
    if (own.empty()) turns_.push_back(client);
    own.push_back(id);
    ++size_;
}

size_t FairQueue::size_of(Client client) const {
    const auto found = waiting_.find(client);
    return found == waiting_.end() ? 0 : found->second.size();
}

FairQueue::Id FairQueue::front() const {
    AFD_ASSERT(!empty(), "nothing waits");
    return again_.empty() ? waiting_.at(turns_.front()).front() : again_.front();
}

void FairQueue::pop() {
    AFD_ASSERT(!empty(), "nothing waits");
    if (!again_.empty()) {
        again_.pop_front();
        return;
    }
    const Client client = turns_.front();
    turns_.pop_front();
    std::deque<Id>& own = waiting_.at(client);
    own.pop_front();
    --size_;
    if (own.empty()) {
        waiting_.erase(client);
    } else {
        turns_.push_back(client);
    }
}

void FairQueue::remove(Id id, Client client) {
    if (const auto found = std::find(again_.begin(), again_.end(), id); found != again_.end()) {
        again_.erase(found);
        return;
    }
    std::deque<Id>& own = waiting_.at(client);
    const auto found = std::find(own.begin(), own.end(), id);
    AFD_ASSERT(
        found != own.end(), "request %llu does not wait", static_cast<unsigned long long>(id));
    own.erase(found);
    --size_;
    if (!own.empty()) return;
    waiting_.erase(client);
    turns_.erase(std::find(turns_.begin(), turns_.end(), client));
}

void FairQueue::change_client(Id id, Client from, Client to) {
    // Those that wait again are in front of all, whoever they are of.
    if (std::find(again_.begin(), again_.end(), id) != again_.end()) return;
    if (from == to) return;
    std::deque<Id>& own = waiting_[to];
    if (own.empty()) turns_.insert(std::find(turns_.begin(), turns_.end(), from), to);
    own.push_back(id);
    ++size_;
    remove(id, from);
}

}  // namespace afd::daemon
