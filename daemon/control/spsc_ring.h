// SPDX-License-Identifier: Apache-2.0
#pragma once

// SpscRing: a bounded queue from one thread to one other thread of the same process.
//
// It joins a worker's control thread and its data thread, one ring per direction. Neither side
// ever waits: push() says when the ring is full, pop() when it is empty; waking the reader is the
// caller's business (an eventfd beside the ring). Not for shared memory. Elements are moved, so
// that one may own something; what is left in the ring is destroyed with it.
//
// Roles: exactly one producer thread calls push() and room(); exactly one consumer thread calls
// pop() and empty().
//
// Ordering: push() releases the element with `written_`, pop() acquires it; so what the producer
// wrote before push() is visible after pop(). The other way pop() releases the place with `read_`.

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace afd::daemon {

template <typename T>
class SpscRing {
    static_assert(std::is_nothrow_move_assignable_v<T>, "elements are moved in and out");

  public:
    // Holds up to `capacity` elements; all memory is allocated here.
    explicit SpscRing(size_t capacity) : elements_(capacity) {}

    // Producer: false if the ring is full; then `element` is as it was.
    bool push(T&& element) {
        // Relaxed: its only writer.
        const size_t written = written_.load(std::memory_order_relaxed);
        if (written - seen_read_ == elements_.size()) {
            // Pairs with the store of pop(): whoever read the element is done with its place.
            seen_read_ = read_.load(std::memory_order_acquire);
            if (written - seen_read_ == elements_.size()) return false;
        }
        elements_[written % elements_.size()] = std::move(element);
        // Pairs with the load of pop() and empty().
        written_.store(written + 1, std::memory_order_release);
        return true;
    }

    // Producer: how many push() calls are certain to succeed.
    size_t room() const {
        // Relaxed: its only writer. Acquire pairs with the store of pop().
        return elements_.size() -
               (written_.load(std::memory_order_relaxed) - read_.load(std::memory_order_acquire));
    }

    // Consumer: false if the ring is empty.
    bool pop(T& element) {
        if (empty()) return false;
        // Relaxed: its only writer.
        const size_t read = read_.load(std::memory_order_relaxed);
        element = std::move(elements_[read % elements_.size()]);
        // Pairs with the loads of push() and room().
        read_.store(read + 1, std::memory_order_release);
        return true;
    }

    // Consumer: whether pop() would find nothing.
    bool empty() const {
        // Acquire pairs with the store of push(). Relaxed: its only writer.
        return written_.load(std::memory_order_acquire) == read_.load(std::memory_order_relaxed);
    }

  private:
    std::vector<T> elements_;
    // Elements ever written and read, each on a line of its own: two threads write them.
    alignas(64) std::atomic<size_t> written_{0};
    size_t seen_read_ = 0;  // Of the producer: what it last saw of read_.
    alignas(64) std::atomic<size_t> read_{0};
};

}  // namespace afd::daemon
