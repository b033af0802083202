// SPDX-License-Identifier: Apache-2.0
#pragma once

// FairQueue: requests that wait, in the order in which they are to run. The connections take turns,
// one request each, and the requests of a connection keep their order: so one that asks for
// thousands costs another a single turn. Those that ran before and wait again, because their worker
// died, come first. Pure: what is asked for is admission_queue.h.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>

namespace afd::daemon {

class FairQueue {
  public:
    using Id = uint64_t;
    // Whose requests they are; compared only.
    using Client = const void*;

    void push(Id id, Client client);
    // In front of all others, in this order and instead of what was given before.
    void set_again(std::span<const Id> ids) { again_.assign(ids.begin(), ids.end()); }
    const std::deque<Id>& again() const { return again_; }

    bool empty() const { return size_ + again_.size() == 0; }
    size_t size() const { return size_ + again_.size(); }
    // Of one connection, without those that wait again.
    size_t size_of(Client client) const;

    // REQUIRES, both: not empty. The front stays the same until it is popped or removed.
    Id front() const;
    void pop();

    // REQUIRES, both: it waits, and is of this client.
    void remove(Id id, Client client);
    // It is of another one from now on, the last of those; and if it is their only one, its turn
    // comes when that of the old client would have come.
    void change_client(Id id, Client from, Client to);

  private:
    std::deque<Id> again_;
    std::unordered_map<Client, std::deque<Id>> waiting_;  // None is empty.
    std::deque<Client> turns_;                            // Of waiting_, each once.
    size_t size_ = 0;                                     // Of all in waiting_.
};

}  // namespace afd::daemon
