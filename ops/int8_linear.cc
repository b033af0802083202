// SPDX-License-Identifier: Apache-2.0

#include "ops/int8_linear.h"

#include <algorithm>
#include <cstring>

#include "ops/panel_loop.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// Rows that share one pass over a panel.
constexpr size_t kTileRows = 4;

void store(float value, float& y) {
    y = value;
}

void store(float value, Bf16& y) {
    y = from_float(value);
}

template <size_t kRows>
void sum_products(const int8_t* const* x, const int8_t* panel, size_t depth, int32_t* sums) {
    int32_t own[kRows][kPanelColumns] = {};
    for (size_t k = 0; k < depth; ++k) {
        const int8_t* weights = panel + k * kPanelColumns;
        for (size_t r = 0; r < kRows; ++r) {
            const int16_t value = x[r][k];
            for (size_t j = 0; j < kPanelColumns; ++j) {
                // |product| <= 2^14: 16 bits hold it.
                own[r][j] += static_cast<int16_t>(value * static_cast<int16_t>(weights[j]));
            }
        }
    }
    std::memcpy(sums, own, sizeof own);
}

template <typename T>
void panel_rows(const Int8Rows& x,
                const PackedInt8Linear& weight,
                const float* column_scale,
                size_t panel,
                Rows<T> y) {
    const size_t first_column = panel * kPanelColumns;
    const size_t num_columns = std::min(kPanelColumns, weight.num_outputs() - first_column);
    int32_t sums[kTileRows * kPanelColumns];
    for (size_t first = 0; first < x.values.num_rows; first += kTileRows) {
        const size_t num_rows = std::min(kTileRows, x.values.num_rows - first);
        const int8_t* rows[kTileRows];
        for (size_t r = 0; r < num_rows; ++r) rows[r] = x.values.row(first + r);
        if (num_rows == kTileRows) {
            sum_products<kTileRows>(rows, weight.panel(panel), weight.depth(), sums);
        } else {
            for (size_t r = 0; r < num_rows; ++r) {
                sum_products<1>(
                    rows + r, weight.panel(panel), weight.depth(), sums + r * kPanelColumns);
            }
        }
        for (size_t r = 0; r < num_rows; ++r) {
            const float row_scale = x.row_scale[first + r];
            T* out = y.row(first + r) + first_column;
            for (size_t j = 0; j < num_columns; ++j) {
                const auto sum = static_cast<float>(sums[r * kPanelColumns + j]);
                store(sum * row_scale * column_scale[first_column + j], out[j]);
            }
        }
    }
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
    const size_t num_products = y.num_rows * y.num_cols * weight.depth();
    run_where_it_pays(parallel, weight.num_panels(), num_products, [&](size_t panel, unsigned) {
        panel_rows(x, weight, column_scale, panel, y);
    });
}

}  // namespace

size_t PackedInt8Linear::num_panels() const {
    return div_up(num_outputs_, kPanelColumns);
}

const int8_t* PackedInt8Linear::panel(size_t index) const {
    return reinterpret_cast<const int8_t*>(storage_.bytes().data()) +
           index * depth_ * kPanelColumns;
}

PackedInt8Linear PackedInt8Linear::pack_transposed(Rows<const int8_t> weight) {
    AFD_ASSERT(weight.num_rows > 0 && weight.num_cols > 0 && weight.num_rows <= kInt8DepthMax,
               "matrix [%zu, %zu]",
               weight.num_rows,
               weight.num_cols);
    PackedInt8Linear packed;
    packed.num_outputs_ = weight.num_cols;
    packed.depth_ = weight.num_rows;
    const size_t bytes = packed.num_panels() * packed.depth_ * kPanelColumns;
    packed.storage_.reserve(bytes);
    std::memset(packed.storage_.bytes().data(), 0, bytes);
    auto* to = reinterpret_cast<int8_t*>(packed.storage_.bytes().data());
    for (size_t panel = 0; panel < packed.num_panels(); ++panel) {
        const size_t first = panel * kPanelColumns;
        const size_t count = std::min(kPanelColumns, weight.num_cols - first);
        for (size_t k = 0; k < weight.num_rows; ++k) {
            std::memcpy(
                to + (panel * packed.depth_ + k) * kPanelColumns, weight.row(k) + first, count);
        }
    }
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
