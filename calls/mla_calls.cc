// SPDX-License-Identifier: Apache-2.0
#include "calls/prepare_operators.h"
#include "ops/operators/mla_v3/mla_attention_v3.h"
#include "ops/operators/mla_v3/mla_prolog_v3.h"
#include "ops/operators/mla_v3/token_axes.h"
#include "ops/reference/mla_attention_v3.h"
#include "ops/reference/mla_prolog_v3.h"

namespace afd::calls {

using ops::size_from_end;

namespace {

// A product of each token with the matrix, whatever its layout.
double products(size_t num_tokens, const ops::ConstTensorView& matrix) {
    return 2.0 * static_cast<double>(num_tokens) * static_cast<double>(matrix.num_elements());
}

// Scores and weighted sums over the positions up to each token's own, then both projections.
double attention_operations(const ops::MlaAttentionV3Request& r) {
    const double row = 2.0 * static_cast<double>(size_from_end(r.query, 0)) +
                       static_cast<double>(size_from_end(r.query_rope, 0));
    double num_positions = 0;
    const auto* positions = static_cast<const int32_t*>(r.positions.data);
    for (size_t t = 0; t < r.positions.num_elements(); ++t) num_positions += positions[t] + 1.0;
    const size_t num_tokens = r.positions.num_elements();
    return 2.0 * num_positions * static_cast<double>(r.weight_uv.shape[0]) * row +
           products(num_tokens, r.weight_uv) + products(num_tokens, r.weight_o);
}

}  // namespace

Result<> prepare_mla_prolog_v3(OperatorCall& call) {
    auto& r = call.keep<ops::MlaPrologV3Request>();
    AFD_TRY(call.fill(ops::kMlaPrologV3Spec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.returns(ops::kMlaPrologV3Spec, r);
    const size_t num_tokens = r.token_x.num_elements() / size_from_end(r.token_x, 0);
    call.set_operations(products(num_tokens, r.weight_dq) + products(num_tokens, r.weight_uq_qr) +
                        products(num_tokens, r.weight_uk) + products(num_tokens, r.weight_dkv_kr));
    auto& weights = call.keep<ops::MlaPrologV3Weights>();
    size_t bytes = 0;
    if (!call.options().is_reference) {
        AFD_ASSIGN(weights, ops::pack_mla_prolog_v3(r, call.options().numeric_class));
        bytes = ops::mla_prolog_v3_workspace_bytes(weights.shape, num_tokens);
    }
    call.ready(
        bytes,
        [&r, &weights, &parallel = call.parallel()](auto workspace) {
            return ops::mla_prolog_v3(r, weights, workspace, parallel);
        },
        [&r, s = call.options().subnormals] { return ops::reference::mla_prolog_v3(r, s); });
    return {};
}

Result<> prepare_mla_attention_v3(OperatorCall& call) {
    auto& r = call.keep<ops::MlaAttentionV3Request>();
    AFD_TRY(call.fill(ops::kMlaAttentionV3Spec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.returns(ops::kMlaAttentionV3Spec, r);
    call.set_operations(attention_operations(r));
    auto& weights = call.keep<ops::MlaAttentionV3Weights>();
    size_t bytes = 0;
    if (!call.options().is_reference) {
        AFD_ASSIGN(weights, ops::pack_mla_attention_v3(r, call.options().numeric_class));
        const ops::MlaShape shape{.kv_lora_rank = size_from_end(r.query, 0),
                                  .num_heads = r.weight_uv.shape[0],
                                  .qk_rope_head_dim = size_from_end(r.query_rope, 0),
                                  .v_head_dim = r.weight_uv.shape[1]};
        bytes = ops::mla_attention_v3_workspace_bytes(
            shape, r.positions.num_elements(), call.parallel().num_threads());
    }
    call.ready(
        bytes,
        [&r, &weights, &parallel = call.parallel()](auto workspace) {
            return ops::mla_attention_v3(r, weights, workspace, parallel);
        },
        [&r, s = call.options().subnormals] { return ops::reference::mla_attention_v3(r, s); });
    return {};
}

}  // namespace afd::calls
