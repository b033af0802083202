// SPDX-License-Identifier: Apache-2.0
#pragma once

// TaskCuts: items that lie in a row, cut into tasks for several threads. The first tasks are large,
// because a stream of memory that begins anew waits for memory first; the last ones are small, so
// that the threads end together, also where one of them is slower. Each round of a task a thread
// takes half of what is left ("factoring": Hummel, Schonberg, Flynn, CACM 35(8), 1992). For what
// has to be cut before it runs; panels of weights are shared out by ops/tensor/item_shares.h.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace afd::ops {

class TaskCuts {
  public:
    struct Range {
        size_t first;
        size_t last;  // Excluded.
    };

    // Tasks of `smallest` to `largest` items, but the last one; a single task for one thread.
    // REQUIRES: 1 <= smallest <= largest, num_threads >= 1.
    TaskCuts(size_t num_items, size_t smallest, unsigned num_threads, size_t largest = SIZE_MAX)
        : num_items_(num_items), smallest_(smallest), largest_(largest), num_threads_(num_threads) {
        for (Round round = first_round(); round.num_tasks > 0; round = after(round)) {
            num_tasks_ += round.num_tasks;
        }
    }

    size_t num_tasks() const { return num_tasks_; }

    // The items of one task, in ascending order of tasks. REQUIRES: task < num_tasks().
    Range range(size_t task) const {
        Round round = first_round();
        for (; task >= round.num_tasks; round = after(round)) task -= round.num_tasks;
        const size_t first = round.first + task * round.size;
        return {first, std::min(first + round.size, num_items_)};
    }

  private:
    // Tasks of equal size; 0 tasks: nothing is left.
    struct Round {
        size_t first;
        size_t size;
        size_t num_tasks;
    };

    Round first_round() const { return round_from(0); }
    Round after(const Round& round) const {
        return round_from(std::min(round.first + round.num_tasks * round.size, num_items_));
    }
    Round round_from(size_t first) const {
        const size_t left = num_items_ - first;
        if (num_threads_ == 1) return {first, left, left > 0 ? size_t{1} : 0};
        const size_t half = (left + 2 * num_threads_ - 1) / (2 * num_threads_);
        const size_t size = std::clamp(half, smallest_, largest_);
        return {first, size, std::min<size_t>((left + size - 1) / size, num_threads_)};
    }

    size_t num_items_;
    size_t smallest_;
    size_t largest_;
    size_t num_threads_;
    size_t num_tasks_ = 0;
};

}  // namespace afd::ops
