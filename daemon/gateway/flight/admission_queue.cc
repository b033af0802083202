// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/admission_queue.h"

#include <algorithm>
#include <string>

namespace afd::daemon {

AdmissionQueue::AdmissionQueue(uint32_t num_workers, uint64_t max_queue, uint32_t max_sequences)
    : max_queue_(max_queue), max_sequences_(max_sequences), workers_(num_workers) {}

void AdmissionQueue::set_num_workers(uint32_t num_workers) {
    AFD_ASSERT(num_running() == 0, "%zu requests run", num_running());
    workers_.assign(num_workers, Worker{});
}

void AdmissionQueue::worker_ready(uint32_t session, uint64_t kv_tokens) {
    Worker& worker = workers_[session];
    AFD_ASSERT(!worker.is_ready, "session %u is ready twice", session);
    worker = Worker{.is_ready = true, .total_blocks = kv_tokens / kBlockTokens};
}

void AdmissionQueue::worker_waits(uint32_t session, bool is_waiting) {
    // What a worker says before it is ready, or leaves behind, is not remembered.
    if (workers_[session].is_ready) workers_[session].is_waiting = is_waiting;
}

std::vector<uint64_t> AdmissionQueue::worker_gone(uint32_t session) {
    workers_[session] = Worker{};
    std::vector<uint64_t> lost;
    for (auto& [id, entry] : requests_) {
        if (entry.session != session) continue;
        entry.session.reset();
        lost.push_back(id);
    }
    const auto by_arrival = [&](uint64_t a, uint64_t b) {
        return requests_.at(a).order < requests_.at(b).order;
    };
    std::sort(lost.begin(), lost.end(), by_arrival);
    // Requests of an earlier death may wait already; the order of arrival settles it.
    std::vector<uint64_t> again(queue_.again().begin(), queue_.again().end());
    again.insert(again.end(), lost.begin(), lost.end());
    std::sort(again.begin(), again.end(), by_arrival);
    queue_.set_again(again);
    return lost;
}

Result<> AdmissionQueue::check_place(FairQueue::Client client) const {
    // With max_queue = 0 a request that runs at once is still taken: enqueue() sees whether it
    // does.
    if (queue_.empty()) return {};
    return check_full(client);
}

Result<> AdmissionQueue::check_full(FairQueue::Client client) const {
    const size_t num_free = max_queue_ - std::min<size_t>(max_queue_, queue_.size());
    if (num_free == 0) {
        return Error{Code::kResourceExhausted,
                     "the queue is full: " + std::to_string(queue_.size()) +
                         " requests wait (max_queue = " + std::to_string(max_queue_) +
                         "); try again later"};
    }
    if (queue_.size_of(client) < 2 * num_free) return {};
    return Error{Code::kResourceExhausted,
                 std::to_string(queue_.size_of(client)) +
                     " requests of this connection wait, and the " + std::to_string(num_free) +
                     " free places of the queue are kept for others (max_queue = " +
                     std::to_string(max_queue_) + "); try again later"};
}

Result<> AdmissionQueue::enqueue(uint64_t id, uint64_t tokens, FairQueue::Client client) {
    const uint64_t blocks = blocks_for(tokens);
    const bool runs_at_once = !is_still_ && queue_.empty() && best_worker(blocks).has_value();
    if (!runs_at_once) AFD_TRY(check_full(client));
    const bool is_new =
        requests_.emplace(id, Entry{blocks, next_order_++, client, std::nullopt}).second;
    AFD_ASSERT(is_new, "request %llu is queued twice", static_cast<unsigned long long>(id));
    queue_.push(id, client);
    return {};
}

bool AdmissionQueue::remove(uint64_t id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return false;
    if (found->second.session) {
        Worker& worker = workers_[*found->second.session];
        worker.used_blocks -= found->second.blocks;
        --worker.num_sequences;
    } else {
        queue_.remove(id, found->second.client);
    }
    requests_.erase(found);
    return true;
}

void AdmissionQueue::change_client(uint64_t id, FairQueue::Client client) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    Entry& entry = found->second;
    if (!entry.session) queue_.change_client(id, entry.client, client);
    entry.client = client;
}

std::optional<AdmissionQueue::Admission> AdmissionQueue::admit_next() {
    if (is_still_ || queue_.empty()) return std::nullopt;
    // Only the first: taking a smaller one that fits would starve a large one.
    const uint64_t id = queue_.front();
    Entry& entry = requests_.at(id);
    const std::optional<uint32_t> session = best_worker(entry.blocks);
    if (!session) return std::nullopt;
    queue_.pop();
    entry.session = session;
    workers_[*session].used_blocks += entry.blocks;
    ++workers_[*session].num_sequences;
    return Admission{id, *session};
}

std::optional<uint32_t> AdmissionQueue::session_of(uint64_t id) const {
    const auto found = requests_.find(id);
    return found == requests_.end() ? std::nullopt : found->second.session;
}

std::optional<uint32_t> AdmissionQueue::best_worker(uint64_t blocks) const {
    // If all wait, it is for something that is common to them, and where a request waits is equal.
    const bool some_go_on = std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
        return worker.is_ready && !worker.is_waiting;
    });
    std::optional<uint32_t> best;
    for (uint32_t session = 0; session < workers_.size(); ++session) {
        const Worker& worker = workers_[session];
        if (some_go_on && worker.is_waiting) continue;
        const bool fits = worker.is_ready && worker.num_sequences < max_sequences_ &&
                          worker.free_blocks() >= blocks;
        // The most free room, so that load spreads; of equal ones the lowest number.
        if (fits && (!best || worker.free_blocks() > workers_[*best].free_blocks())) {
            best = session;
        }
    }
    return best;
}

void AdmissionQueue::fill_status(client::Status& status) const {
    status.set_num_queued(static_cast<uint32_t>(num_queued()));
    status.set_num_running(static_cast<uint32_t>(num_running()));
    for (client::Worker& worker : *status.mutable_workers()) {
        if (worker.role() != "attention" || worker.index() >= workers_.size()) continue;
        const Worker& load = workers_[worker.index()];
        worker.set_num_sequences(load.num_sequences);
        worker.set_kv_tokens_used(load.used_blocks * kBlockTokens);
        worker.set_kv_tokens_total(load.total_blocks * kBlockTokens);
    }
}

}  // namespace afd::daemon
