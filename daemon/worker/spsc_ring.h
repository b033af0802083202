// SPDX-License-Identifier: Apache-2.0
#pragma once

// SpscRing: a bounded queue from one thread to one other thread of the same process.
//
// It joins a worker's control thread and its data thread, one ring per direction. Neither side
// ever waits: push() says when the ring is full, pop() when it is empty; waking the reader is the
// caller's business (an eventfd beside the ring). Not for shared memory.
//
// Roles: exactly one producer thread calls push() and room(); exactly one consumer thread calls
// pop() and empty().
//
// Ordering (boost::lockfree::spsc_queue): push() releases the element and the index, pop()
// acquires them; so what the producer wrote before push() is visible after pop().

#include <boost/lockfree/spsc_queue.hpp>
#include <cstddef>
#include <utility>

namespace afd::daemon {

template <typename T>
class SpscRing {
  public:
    // Holds up to `capacity` elements; all memory is allocated here.
    explicit SpscRing(size_t capacity) : queue_(capacity) {}

    // Producer: false if the ring is full.
    bool push(const T& element) { return queue_.push(element); }

    // Producer: how many push() calls are certain to succeed.
    size_t room() const { return queue_.write_available(); }

    // Consumer: false if the ring is empty.
    bool pop(T& element) { return queue_.pop(element); }

    // Consumer: whether pop() would find nothing.
    bool empty() const { return queue_.read_available() == 0; }

  private:
    boost::lockfree::spsc_queue<T> queue_;
};

}  // namespace afd::daemon
