// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/moe_finalize_routing.h"

#include "ops/reference/quantise.h"

namespace afd::ops::reference {
namespace {

float sum_of(const MoeFinalizeRoutingRequest& r, size_t n, size_t column) {
    const size_t hidden = r.out.shape[1];
    const size_t top_k = r.expanded_row_idx.shape[0] / r.out.shape[0];
    const auto at = [&](const ConstTensorView& view, size_t row) {
        return element(view.dtype, view.data, row * hidden + column);
    };
    float sum = r.x1.num_elements() > 0 ? at(r.x1, n) : 0.0f;
    if (r.x2.num_elements() > 0) sum = sum + at(r.x2, n);
    for (size_t k = 0; k < top_k; ++k) {
        const size_t f = n * top_k + k;
        const int32_t index = static_cast<const int32_t*>(r.expanded_row_idx.data)[f];
        if (index == -1) continue;
        float value = at(r.expanded_x, static_cast<size_t>(index));
        if (r.bias.num_elements() > 0) {
            const int32_t expert = static_cast<const int32_t*>(r.expert_idx.data)[f];
            value = value + at(r.bias, static_cast<size_t>(expert));
        }
        if (r.scales.num_elements() > 0) value = element(r.scales.dtype, r.scales.data, f) * value;
        sum = sum + value;
    }
    return sum;
}

}  // namespace

Result<> moe_finalize_routing(const MoeFinalizeRoutingRequest& r) {
    AFD_TRY(check_moe_finalize_routing(r));
    for (size_t n = 0; n < r.out.shape[0]; ++n) {
        for (size_t column = 0; column < r.out.shape[1]; ++column) {
            set_element(r.out.dtype, r.out.data, n * r.out.shape[1] + column, sum_of(r, n, column));
        }
    }
    return {};
}

}  // namespace afd::ops::reference
