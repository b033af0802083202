// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/int8_linear.h"

#include <algorithm>
#include <vector>

#include "ops/linear/panel_loop.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

void store(float value, float& y) {
    y = value;
}

void store(float value, Bf16& y) {
    y = from_float(value);
}

template <typename T>
void run(const Int8Rows& x,
         const PackedInt8Linear& weight,
         const float* column_scale,
         Rows<T> y,
         Parallel& parallel) {
    AFD_ASSERT(x.values.num_cols == weight.depth() && y.num_cols == weight.num_outputs() &&
                   y.num_rows == x.values.num_rows,
               "x [%zu, %zu], weight [%zu, %zu], y [%zu, %zu]",
               x.values.num_rows,
               x.values.num_cols,
               weight.depth(),
               weight.num_outputs(),
               y.num_rows,
               y.num_cols);
    const PackedLinear& packed = weight.packed();
    const size_t num_products = y.num_rows * y.num_cols * weight.depth();
    const size_t num_panels = packed.num_panels();
    if (y.num_rows == 0) return;
    run_where_it_pays(parallel, num_panels, num_products, [&](size_t task, unsigned) {
        int8_sums(x, packed, task, task + 1, [&](size_t row, size_t panel, const int32_t* sums) {
            const size_t first = panel * kPanelColumns;
            const size_t count = std::min(kPanelColumns, y.num_cols - first);
            for (size_t j = 0; j < count; ++j) {
                const auto sum = static_cast<float>(sums[j]);
                store(sum * x.row_scale[row] * column_scale[first + j], y.row(row)[first + j]);
            }
        });
    });
}

}  // namespace

PackedInt8Linear PackedInt8Linear::pack_transposed(Rows<const int8_t> weight) {
    const size_t depth = weight.num_rows;
    const size_t outputs = weight.num_cols;
    std::vector<int8_t> rows(outputs * depth);
    for (size_t k = 0; k < depth; ++k) {
        for (size_t n = 0; n < outputs; ++n) rows[n * depth + k] = weight.row(k)[n];
    }
    const std::vector<float> ones(outputs, 1.0f);
    PackedInt8Linear packed;
    packed.packed_ = PackedLinear::pack(
        Int8Weight{make_rows<const int8_t>(rows.data(), outputs, depth), ones.data()},
        best_numeric_class());
    return packed;
}

void int8_linear(const Int8Rows& x,
                 const PackedInt8Linear& weight,
                 const float* column_scale,
                 Rows<float> y,
                 Parallel& parallel) {
    run(x, weight, column_scale, y, parallel);
}

void int8_linear(const Int8Rows& x,
                 const PackedInt8Linear& weight,
                 const float* column_scale,
                 Rows<Bf16> y,
                 Parallel& parallel) {
    run(x, weight, column_scale, y, parallel);
}

}  // namespace afd::ops
