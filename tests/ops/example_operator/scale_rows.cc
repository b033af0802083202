// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/example_operator/scale_rows.h"

#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/row_tasks.h"

namespace afd::ops::example {
namespace {

template <typename T>
void scale_row(const ScaleRowsRequest& r, size_t row) {
    const size_t hidden = r.x.shape[1];
    const auto* x = static_cast<const T*>(r.x.data) + row * hidden;
    auto* y = static_cast<T*>(r.y.data) + row * hidden;
    const bool has_factors = r.factors.num_elements() > 0;
    const float factor = has_factors ? static_cast<const float*>(r.factors.data)[row] : 1.0f;
    // What the row has in common is computed once: the same two operations in the same order.
    const float scale = r.mode == 0 ? factor * r.gain : factor;
    for (size_t i = 0; i < hidden; ++i) {
        const float product = to_float(x[i]) * scale;
        y[i] = round_to<T>(r.mode == 0 ? product : product + r.gain);
    }
}

}  // namespace

Result<> scale_rows(const ScaleRowsRequest& r, std::span<std::byte>, Parallel& parallel) {
    AFD_TRY(check_scale_rows(r));
    with_float_type(r.x.dtype, [&](auto zero) {
        for_rows(parallel, r.x.shape[0], r.x.shape[1], [&](size_t first, size_t last, unsigned) {
            for (size_t row = first; row < last; ++row) scale_row<decltype(zero)>(r, row);
        });
    });
    return {};
}

}  // namespace afd::ops::example
