// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/moe_gating_top_k.h"

#include <algorithm>
#include <span>

#include "ops/reference/gating_rows.h"
#include "ops/tensor/float_dispatch.h"

namespace afd::ops::reference {

Result<> moe_gating_top_k(const MoeGatingTopKRequest& r) {
    AFD_ASSIGN(const GatingAttributes attributes, check_moe_gating_top_k(r));
    const std::span<const float> bias{static_cast<const float*>(r.bias.data),
                                      r.bias.num_elements()};
    Matrix logits(r.x.shape[0], r.x.shape[1]);
    with_float_type(r.x.dtype, [&](auto zero) {
        const auto* x = static_cast<const decltype(zero)*>(r.x.data);
        for (size_t i = 0; i < logits.values.size(); ++i) {
            logits.values[i] = static_cast<double>(to_float(x[i]));
        }
    });
    const GatingOutput output = gating_rows(attributes, logits, bias);
    std::transform(output.weights.values.begin(),
                   output.weights.values.end(),
                   static_cast<float*>(r.y.data),
                   [](double weight) { return static_cast<float>(weight); });
    std::copy(output.ids.begin(), output.ids.end(), static_cast<int32_t*>(r.expert_idx.data));
    return {};
}

}  // namespace afd::ops::reference
