// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/mla_v3/mla_attention_v3.h"
#include "ops/operators/mla_v3/mla_prolog_v3.h"
#include "ops/operators/mla_v3/token_axes.h"
#include "ops/reference/mla_attention_v3.h"
#include "ops/reference/mla_prolog_v3.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {

using ops::size_from_end;

Result<> run_mla_prolog_v3(OperatorCall& call) {
    ops::MlaPrologV3Request r;
    AFD_TRY(call.fill(ops::kMlaPrologV3Spec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.make_outputs(ops::kMlaPrologV3Spec, r);
    if (call.is_reference()) return ops::reference::mla_prolog_v3(r);
    AFD_ASSIGN(const ops::MlaPrologV3Weights weights,
               ops::pack_mla_prolog_v3(r, ops::best_numeric_class()));
    const size_t num_tokens = r.token_x.num_elements() / size_from_end(r.token_x, 0);
    const size_t bytes = ops::mla_prolog_v3_workspace_bytes(weights.shape, num_tokens);
    return ops::mla_prolog_v3(r, weights, call.workspace(bytes), call.parallel());
}

Result<> run_mla_attention_v3(OperatorCall& call) {
    ops::MlaAttentionV3Request r;
    AFD_TRY(call.fill(ops::kMlaAttentionV3Spec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.make_outputs(ops::kMlaAttentionV3Spec, r);
    if (call.is_reference()) return ops::reference::mla_attention_v3(r);
    AFD_ASSIGN(const ops::MlaAttentionV3Weights weights,
               ops::pack_mla_attention_v3(r, ops::best_numeric_class()));
    const ops::MlaShape shape{.kv_lora_rank = size_from_end(r.query, 0),
                              .num_heads = r.weight_uv.shape[0],
                              .qk_rope_head_dim = size_from_end(r.query_rope, 0),
                              .v_head_dim = r.weight_uv.shape[1]};
    const size_t bytes = ops::mla_attention_v3_workspace_bytes(
        shape, r.positions.num_elements(), call.parallel().num_threads());
    return ops::mla_attention_v3(r, weights, call.workspace(bytes), call.parallel());
}

}  // namespace afd::tools
