// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/grouped_matmul_swiglu.h"

#include <vector>

#include "ops/operators/group_list.h"
#include "ops/reference/quantise.h"
#include "ops/tensor/math.h"

namespace afd::ops::reference {
namespace {

// One output of the linear layer, →bf16.
float projection(const GroupedMatmulSwigluRequest& r,
                 size_t row,
                 size_t expert,
                 size_t column,
                 Subnormals subnormals) {
    const size_t depth = r.weight.shape[1];
    const size_t width = r.weight.shape[2];
    float sum = 0.0f;
    if (r.x.dtype == DType::kInt8) {
        int32_t exact = 0;
        for (size_t k = 0; k < depth; ++k) {
            exact +=
                static_cast<const int8_t*>(r.x.data)[row * depth + k] *
                static_cast<const int8_t*>(r.weight.data)[(expert * depth + k) * width + column];
        }
        sum = static_cast<float>(exact) * static_cast<const float*>(r.x_scale.data)[row];
        sum = sum * static_cast<const float*>(r.weight_scale.data)[expert * width + column];
    } else {
        for (size_t k = 0; k < depth; ++k) {
            sum = multiply_add(
                sum,
                element(DType::kBf16, r.x.data, row * depth + k),
                element(DType::kBf16, r.weight.data, (expert * depth + k) * width + column),
                subnormals);
        }
    }
    return rounded(sum);
}

}  // namespace

Result<> grouped_matmul_swiglu(const GroupedMatmulSwigluRequest& r, Subnormals subnormals) {
    AFD_TRY(check_grouped_matmul_swiglu(r));
    const size_t intermediate = r.output.shape[1];
    GroupList(r.group_list_type, r.group_list).for_each([&](const GroupRows& group) {
        for (size_t row = group.first_row; row < group.first_row + group.count; ++row) {
            std::vector<Bf16> h(intermediate);
            for (size_t n = 0; n < intermediate; ++n) {
                const float gate = projection(r, row, group.expert, n, subnormals);
                const float up = projection(r, row, group.expert, intermediate + n, subnormals);
                h[n] = from_float(silu(gate) * up);
            }
            if (r.quant_mode == 1) {
                static_cast<float*>(r.output_scale.data)[row] =
                    quantise_row(DType::kBf16,
                                 h.data(),
                                 nullptr,
                                 intermediate,
                                 static_cast<int8_t*>(r.output.data) + row * intermediate);
            } else {
                std::copy(
                    h.begin(), h.end(), static_cast<Bf16*>(r.output.data) + row * intermediate);
            }
        }
    });
    return {};
}

}  // namespace afd::ops::reference
