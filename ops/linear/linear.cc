// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/linear.h"

#include <algorithm>

#include "ops/linear/panel_finish.h"
#include "ops/linear/panel_loop.h"
#include "ops/tensor/row_tasks.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

template <typename T>
void check_shapes(const LinearInput& x, const PackedLinear& weight, Rows<T> y, size_t num_outputs) {
    AFD_ASSERT(x.rows.num_cols == weight.depth() && y.num_cols == num_outputs &&
                   y.num_rows == x.rows.num_rows,
               "x [%zu, %zu], weight [%zu, %zu], y [%zu, %zu]",
               x.rows.num_rows,
               x.rows.num_cols,
               weight.num_outputs(),
               weight.depth(),
               y.num_rows,
               y.num_cols);
}

}  // namespace

void linear(const LinearInput& x, const PackedLinear& weight, Rows<Bf16> y, Parallel& parallel) {
    check_shapes(x, weight, y, weight.num_outputs());
    AFD_ASSERT(!weight.is_gate_up(), "gate and up columns are interleaved: use swiglu");
    for_each_panel_row(x, weight, parallel, RoundPanels(weight, y));
}

void linear_panels(const LinearInput& x,
                   const PackedLinear& weight,
                   size_t first_panel,
                   size_t last_panel,
                   Rows<Bf16> y) {
    for_each_panel_row(x, weight, first_panel, last_panel, RoundPanels(weight, y));
}

void linear_pair(const LinearInput& x,
                 const LinearOutput& first,
                 const LinearOutput& second,
                 Parallel& parallel) {
    for (const LinearOutput& output : {first, second}) {
        check_shapes(x, *output.weight, output.y, output.weight->num_outputs());
    }
    // The panels of both matrices in one line, shared out together: a thread that is through with
    // the first goes on into the second without a barrier.
    const size_t num_first = first.weight->num_panels();
    const size_t num_panels = num_first + second.weight->num_panels();
    const size_t smallest = panels_per_task(x.rows.num_rows, first.weight->depth());
    run_shares(parallel, num_panels, smallest, [&](size_t begin, size_t end) {
        linear_panels(
            x, *first.weight, std::min(begin, num_first), std::min(end, num_first), first.y);
        linear_panels(x,
                      *second.weight,
                      std::max(begin, num_first) - num_first,
                      std::max(end, num_first) - num_first,
                      second.y);
    });
}

void linear_f32(const LinearInput& x,
                const PackedLinear& weight,
                Rows<float> y,
                Parallel& parallel) {
    check_shapes(x, weight, y, weight.num_outputs());
    AFD_ASSERT(!weight.is_gate_up(), "gate and up columns are interleaved: use swiglu");
    for_each_panel_row(x, weight, parallel, [&](size_t row, size_t panel, const float* sums) {
        const size_t column = panel * kPanelColumns;
        std::copy_n(sums, std::min(kPanelColumns, y.num_cols - column), y.row(row) + column);
    });
}

void add_bias(std::span<const Bf16> bias, Rows<float> y, Parallel& parallel) {
    AFD_ASSERT(bias.size() == y.num_cols, "%zu biases, y [, %zu]", bias.size(), y.num_cols);
    for_rows(parallel, y.num_rows, y.num_cols, [&](size_t first, size_t last, unsigned) {
        for (size_t t = first; t < last; ++t) {
            float* row = y.row(t);
            for (size_t i = 0; i < y.num_cols; ++i) row[i] = row[i] + to_float(bias[i]);
        }
    });
}

void linear_biased(const LinearInput& x,
                   const PackedLinear& weight,
                   std::span<const Bf16> bias,
                   Rows<float> sums,
                   Rows<Bf16> y,
                   Parallel& parallel) {
    AFD_ASSERT(bias.size() == y.num_cols, "%zu biases, y [, %zu]", bias.size(), y.num_cols);
    linear_f32(x, weight, sums, parallel);
    for_rows(parallel, y.num_rows, y.num_cols, [&](size_t first, size_t last, unsigned) {
        for (size_t t = first; t < last; ++t) {
            const float* sum = sums.row(t);
            Bf16* out = y.row(t);
            for (size_t i = 0; i < y.num_cols; ++i) {
                out[i] = from_float(sum[i] + to_float(bias[i]));
            }
        }
    });
}

void swiglu(const LinearInput& x, const PackedLinear& weight, Rows<Bf16> h, Parallel& parallel) {
    check_shapes(x, weight, h, weight.num_outputs() / 2);
    AFD_ASSERT(weight.is_gate_up(), "not packed by pack_gate_up");
    for_each_panel_row(x, weight, parallel, ActivatePanels(weight, ExpertActivation::kSilu, h));
}

}  // namespace afd::ops
