// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loops around the tile kernel: rows x panels of one packed matrix, shared by linear and
// grouped_ffn. Internal to ops/.

#include <algorithm>
#include <cstddef>

#include "ops/cpu/kernels.h"
#include "ops/linear.h"
#include "ops/tensor_view.h"

namespace afd::ops {

// Work below this many multiply-adds is not worth handing to another thread: about 10 us.
inline constexpr size_t kTaskProducts = size_t{1} << 18;

inline size_t div_up(size_t value, size_t by) {
    return (value + by - 1) / by;
}

// Tasks that `num_panels` panels of depth `depth` are worth for `num_rows` rows.
inline size_t num_panel_tasks(size_t num_rows,
                              size_t num_panels,
                              size_t depth,
                              unsigned num_threads) {
    if (num_threads == 1) return 1;
    const size_t products = num_rows * num_panels * kPanelColumns * depth;
    // Four tasks a thread even out the speed of the threads.
    return std::clamp<size_t>(
        products / kTaskProducts, 1, std::min<size_t>(num_panels, 4 * num_threads));
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

// Calls finish(row, panel, sums [kPanelColumns]) for every row and every panel in
// [first_panel, last_panel). The weights of a few panels stay in cache while the rows pass.
template <typename Finish>
void for_each_panel_row(Rows<const Bf16> x,
                        const PackedLinear& weight,
                        size_t first_panel,
                        size_t last_panel,
                        const Finish& finish) {
    if (x.num_rows == 0) return;
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    const size_t num_blocks = div_up(x.num_rows, cpu::kTileRows);
    const size_t panels_per_tile = cpu::tile_panels(div_up(x.num_rows, num_blocks));
    alignas(64) float tile[cpu::kTileFloats];
    for (size_t panel = first_panel; panel < last_panel; panel += panels_per_tile) {
        const size_t num_panels = std::min(panels_per_tile, last_panel - panel);
        for (size_t block = 0; block < num_blocks; ++block) {
            const size_t first_row = block * x.num_rows / num_blocks;
            const size_t num_rows = (block + 1) * x.num_rows / num_blocks - first_row;
            kernels.tile({.x = x.row(first_row),
                          .x_stride = x.stride,
                          .num_rows = num_rows,
                          .panel = weight.panel(panel),
                          .panel_elements = weight.panel_elements(),
                          .num_panels = num_panels,
                          .depth = weight.depth(),
                          .out = tile});
            for (size_t r = 0; r < num_rows; ++r) {
                for (size_t p = 0; p < num_panels; ++p) {
                    finish(first_row + r, panel + p, &tile[(r * num_panels + p) * kPanelColumns]);
                }
            }
        }
    }
}

// The same over all panels, in parallel where it pays.
template <typename Finish>
void for_each_panel_row(Rows<const Bf16> x,
                        const PackedLinear& weight,
                        Parallel& parallel,
                        const Finish& finish) {
    const size_t num_panels = weight.num_panels();
    const size_t num_tasks =
        num_panel_tasks(x.num_rows, num_panels, weight.depth(), parallel.num_threads());
    if (num_tasks == 1) {
        for_each_panel_row(x, weight, 0, num_panels, finish);
        return;
    }
    parallel.run(num_tasks, [&](size_t task, unsigned) {
        for_each_panel_row(
            x, weight, task * num_panels / num_tasks, (task + 1) * num_panels / num_tasks, finish);
    });
}

}  // namespace afd::ops
