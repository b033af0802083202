// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/moe_gating_top_k.h"

#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {
namespace {

std::span<const float> bias_of(const MoeGatingTopKRequest& r) {
    return {static_cast<const float*>(r.bias.data), r.bias.num_elements()};
}

}  // namespace

size_t moe_gating_top_k_workspace_bytes(const MoeGatingTopKRequest& r) {
    const auto attributes = check_moe_gating_top_k(r);
    AFD_ASSERT(attributes.ok(), "%s", attributes.error().message.c_str());
    return gating_rows_workspace_bytes(attributes.value()) +
           workspace_bytes_of<float>(attributes.value().num_experts);
}

Result<> moe_gating_top_k(const MoeGatingTopKRequest& r, std::span<std::byte> workspace) {
    AFD_ASSIGN(const GatingAttributes attributes, check_moe_gating_top_k(r));
    WorkspaceCursor cursor(workspace);
    auto* row = cursor.take<float>(attributes.num_experts);
    const std::span<std::byte> scratch =
        workspace.subspan(workspace_bytes_of<float>(attributes.num_experts));
    const auto k = static_cast<size_t>(r.k);
    with_float_type(r.x.dtype, [&](auto zero) {
        const auto* x = static_cast<const decltype(zero)*>(r.x.data);
        for (size_t n = 0; n < r.x.shape[0]; ++n) {
            for (size_t e = 0; e < attributes.num_experts; ++e) {
                // Row by row, so that the logits of any dtype need one row of fp32 and not a
                // matrix.
                row[e] = to_float(x[n * attributes.num_experts + e]);
            }
            gating_rows(attributes,
                        make_rows<const float>(row, 1, attributes.num_experts),
                        bias_of(r),
                        make_rows(static_cast<float*>(r.y.data) + n * k, 1, k),
                        make_rows(static_cast<int32_t*>(r.expert_idx.data) + n * k, 1, k),
                        scratch);
        }
    });
    return {};
}

}  // namespace afd::ops
