// SPDX-License-Identifier: Apache-2.0
#pragma once

// for_rows: cuts independent rows into tasks, the one rule for every operator that walks over rows.

#include <algorithm>
#include <cstddef>

#include "ops/tensor/parallel.h"

namespace afd::ops {

// Elements that a task handles at least: 5 to 10 us of loading, a few operations and storing, many
// times what it costs to hand a task to a thread that waits for one.
inline constexpr size_t kElementsPerTask = size_t{1} << 14;

// Bytes that are copied in the time of one such element.
inline constexpr size_t kCopiedBytesPerElement = 8;

// Tasks that `num_rows` rows of `row_elements` elements are worth: no more than rows, and as many
// for every thread, unless they are too few for all.
inline size_t num_row_tasks(size_t num_rows, size_t row_elements, unsigned num_threads) {
    const size_t tasks = std::min(num_rows, num_rows * row_elements / kElementsPerTask);
    if (num_threads == 1 || tasks < 2) return 1;
    return tasks < num_threads ? tasks : tasks - tasks % num_threads;
}

// Calls body(first_row, last_row, thread) for ranges of nearly equal size that cover all rows, on
// several threads if that pays. Without rows nothing is called. `row_elements`: what one row costs.
template <typename Body>
void for_rows(Parallel& parallel, size_t num_rows, size_t row_elements, const Body& body) {
    if (num_rows == 0) return;
    const size_t num_tasks = num_row_tasks(num_rows, row_elements, parallel.num_threads());
    if (num_tasks == 1) {
        body(size_t{0}, num_rows, 0U);
        return;
    }
    parallel.run(num_tasks, [&](size_t task, unsigned thread) {
        body(task * num_rows / num_tasks, (task + 1) * num_rows / num_tasks, thread);
    });
}

}  // namespace afd::ops
