// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/linear_input.h"

#include "ops/cpu/kernels.h"
#include "ops/linear/quantise.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/spread_rows.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

size_t quantised_input_bytes(size_t num_rows, size_t depth) {
    return workspace_bytes_of<int8_t>(num_rows * spread_stride<int8_t>(depth)) +
           workspace_bytes_of<float>(num_rows) + workspace_bytes_of<int32_t>(num_rows);
}

LinearInput quantised_input(Rows<const Bf16> rows,
                            std::span<std::byte> workspace,
                            Parallel& parallel) {
    WorkspaceCursor cursor(workspace);
    const size_t stride = spread_stride<int8_t>(rows.num_cols);
    auto* values = cursor.take<int8_t>(rows.num_rows * stride);
    auto* scale = cursor.take<float>(rows.num_rows);
    auto* sum = cursor.take<int32_t>(rows.num_rows);
    const cpu::Kernels& kernels = cpu::best_kernels();
    for_rows(parallel, rows.num_rows, rows.num_cols, [&](size_t first, size_t last, unsigned) {
        for (size_t row = first; row < last; ++row) {
            scale[row] = quantise_row(
                DType::kBf16, rows.row(row), nullptr, rows.num_cols, values + row * stride);
            // The sum of the row takes back the 128 that stored weights are too large by.
            sum[row] = kernels.sum_int8(values + row * stride, rows.num_cols);
        }
    });
    LinearInput input(rows);
    input.int8 = {Rows<const int8_t>{values, rows.num_rows, rows.num_cols, stride}, scale, sum};
    return input;
}

}  // namespace afd::ops
