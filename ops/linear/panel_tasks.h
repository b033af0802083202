// SPDX-License-Identifier: Apache-2.0
#pragma once

// When a product is worth other threads: sizes of tasks over the panels of a packed matrix.
// Internal to ops/.

#include <algorithm>
#include <cstddef>

#include "ops/format/packed_shape.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/round_up.h"

namespace afd::ops {

// Work below this many multiply-adds is not worth handing to another thread: about 10 us.
inline constexpr size_t kTaskProducts = size_t{1} << 18;

// Few rows wait for their weights, not for the multiplier: they take as long as this many, and are
// cut into tasks as this many.
inline constexpr size_t kMemoryBoundRows = 4;

// Panels of depth `depth` that are worth a task for `num_rows` rows.
inline size_t panels_per_task(size_t num_rows, size_t depth) {
    const size_t panel_products = std::max(num_rows, kMemoryBoundRows) * kPanelColumns * depth;
    return div_up(kTaskProducts, std::max<size_t>(panel_products, 1));
}

// Runs the tasks on the calling thread if all of them together, `num_products` multiply-adds, are
// not worth waking another one.
template <typename Body>
void run_where_it_pays(Parallel& parallel,
                       size_t num_tasks,
                       size_t num_products,
                       const Body& body) {
    if (num_tasks > 1 && num_products >= 2 * kTaskProducts) {
        parallel.run(num_tasks, body);
        return;
    }
    for (size_t task = 0; task < num_tasks; ++task) body(task, 0u);
}

}  // namespace afd::ops
