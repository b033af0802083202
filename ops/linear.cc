// SPDX-License-Identifier: Apache-2.0

#include "ops/linear.h"

#include <algorithm>

#include "ops/panel_loop.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

template <typename T>
void check_shapes(Rows<const Bf16> x, const PackedLinear& weight, Rows<T> y, size_t num_outputs) {
    AFD_ASSERT(
        x.num_cols == weight.depth() && y.num_cols == num_outputs && y.num_rows == x.num_rows,
        "x [%zu, %zu], weight [%zu, %zu], y [%zu, %zu]",
        x.num_rows,
        x.num_cols,
        weight.num_outputs(),
        weight.depth(),
        y.num_rows,
        y.num_cols);
}

}  // namespace

void linear(Rows<const Bf16> x, const PackedLinear& weight, Rows<Bf16> y, Parallel& parallel) {
    check_shapes(x, weight, y, weight.num_outputs());
    AFD_ASSERT(!weight.is_gate_up(), "gate and up columns are interleaved: use swiglu");
    const auto round_row = cpu::kernels(weight.numeric_class()).round_row;
    for_each_panel_row(x, weight, parallel, [&](size_t row, size_t panel, const float* sums) {
        const size_t column = panel * kPanelColumns;
        round_row(sums, std::min(kPanelColumns, y.num_cols - column), y.row(row) + column);
    });
}

void linear_f32(Rows<const Bf16> x, const PackedLinear& weight, Rows<float> y, Parallel& parallel) {
    check_shapes(x, weight, y, weight.num_outputs());
    AFD_ASSERT(!weight.is_gate_up(), "gate and up columns are interleaved: use swiglu");
    for_each_panel_row(x, weight, parallel, [&](size_t row, size_t panel, const float* sums) {
        const size_t column = panel * kPanelColumns;
        std::copy_n(sums, std::min(kPanelColumns, y.num_cols - column), y.row(row) + column);
    });
}

void swiglu(Rows<const Bf16> x, const PackedLinear& weight, Rows<Bf16> h, Parallel& parallel) {
    check_shapes(x, weight, h, weight.num_outputs() / 2);
    AFD_ASSERT(weight.is_gate_up(), "not packed by pack_gate_up");
    constexpr size_t kHalf = kPanelColumns / 2;
    const auto swiglu_row = cpu::kernels(weight.numeric_class()).swiglu_row;
    for_each_panel_row(x, weight, parallel, [&](size_t row, size_t panel, const float* sums) {
        const size_t column = panel * kHalf;
        swiglu_row(sums, sums + kHalf, std::min(kHalf, h.num_cols - column), h.row(row) + column);
    });
}

}  // namespace afd::ops
