// SPDX-License-Identifier: Apache-2.0
#pragma once

// ItemShares: items that lie in a row in memory, each share of them for one thread. It goes through
// its share from the beginning, half of what is left at a time, and then takes over from the end of
// the share that has most left, so that threads end together, also where one of them is slower. A
// thread reads one stream of memory until then: one that begins anew waits for memory first.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ops/tensor/parallel.h"

namespace afd::ops {

struct ItemRange {
    size_t first;
    size_t last;  // Excluded.
    bool empty() const { return first == last; }
};

class ItemShares {
  public:
    // Shares for so many tasks, kMost at most: further tasks only take over. A range has `smallest`
    // items at least, but the last one of a share.
    // REQUIRES: smallest >= 1, num_tasks >= 1, num_items < 2^32.
    ItemShares(size_t num_items, size_t smallest, size_t num_tasks)
        : smallest_(smallest), num_shares_(std::min(num_tasks, kMost)) {
        for (size_t share = 0; share < num_shares_; ++share) {
            // Relaxed: other threads come with the run that begins later.
            shares_[share].left.store(
                pack({share * num_items / num_shares_, (share + 1) * num_items / num_shares_}),
                std::memory_order_relaxed);
        }
    }

    // What the thread that runs `task` does next. Empty: everything is done or being done.
    // Thread-safe.
    ItemRange next(size_t task) {
        if (task < num_shares_) {
            const ItemRange range = take<End::kFirst>(shares_[task]);
            if (!range.empty()) return range;
        }
        while (Share* const most = with_most_left()) {
            const ItemRange range = take<End::kLast>(*most);
            if (!range.empty()) return range;
        }
        return {0, 0};
    }

  private:
    static constexpr size_t kMost = 64;
    enum class End { kFirst, kLast };

    // On a cache line of its own.
    struct alignas(64) Share {
        std::atomic<uint64_t> left;
    };

    static uint64_t pack(const ItemRange& range) {
        return uint64_t{range.first} << 32 | range.last;
    }
    static ItemRange unpack(uint64_t word) { return {word >> 32, word & UINT32_MAX}; }

    // Half of what is left of a share, from one of its ends. Relaxed throughout: a range says who
    // computes what, and nothing that one thread has computed is read by another before the run
    // ends.
    template <End kEnd>
    ItemRange take(Share& share) {
        uint64_t word = share.left.load(std::memory_order_relaxed);
        for (;;) {
            const ItemRange left = unpack(word);
            const size_t num_left = left.last - left.first;
            const size_t count = std::min(std::max((num_left + 1) / 2, smallest_), num_left);
            const bool is_first = kEnd == End::kFirst;
            const size_t cut = is_first ? left.first + count : left.last - count;
            const ItemRange before{left.first, cut};
            const ItemRange behind{cut, left.last};
            // Relaxed, as above.
            if (share.left.compare_exchange_weak(
                    word, pack(is_first ? behind : before), std::memory_order_relaxed)) {
                return is_first ? before : behind;
            }
        }
    }

    // Null: none has any.
    Share* with_most_left() {
        Share* most = nullptr;
        size_t most_left = 0;
        for (size_t i = 0; i < num_shares_; ++i) {
            // Relaxed: only a hint; take() looks again.
            const ItemRange left = unpack(shares_[i].left.load(std::memory_order_relaxed));
            if (left.last - left.first <= most_left) continue;
            most_left = left.last - left.first;
            most = &shares_[i];
        }
        return most;
    }

    size_t smallest_;
    size_t num_shares_;
    std::array<Share, kMost> shares_;
};

// Calls body(first, last) for ranges that cover the items, each once, on as many threads as there
// are `smallest` items for; on the calling thread alone if that is one.
template <typename Body>
void run_shares(Parallel& parallel, size_t num_items, size_t smallest, const Body& body) {
    const size_t num_tasks = std::min<size_t>(num_items / smallest, parallel.num_threads());
    if (num_tasks <= 1) return body(size_t{0}, num_items);
    ItemShares shares(num_items, smallest, num_tasks);
    parallel.run(num_tasks, [&](size_t task, unsigned) {
        for (ItemRange range = shares.next(task); !range.empty(); range = shares.next(task)) {
            body(range.first, range.last);
        }
    });
}

}  // namespace afd::ops
