// SPDX-License-Identifier: Apache-2.0
#include "calls/prepare_operators.h"
#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/ffn_to_attention.h"
#include "ops/reference/attention_to_ffn.h"
#include "ops/reference/ffn_to_attention.h"
#include "schedule/context/schedule_context.h"

namespace afd::calls {

Result<> prepare_attention_to_ffn(OperatorCall& call) {
    auto& r = call.keep<ops::AttentionToFfnRequest>();
    AFD_TRY(call.fill(ops::kAttentionToFfnSpec, r));
    const size_t num_slots = r.context->common.selected_expert_num;
    const size_t num_tokens = extent(r.x, 0);
    r.slot_ranks = shape_of(ops::DType::kInt32, {num_tokens, num_slots});
    AFD_TRY(ops::check_attention_to_ffn(r));
    call.returns(ops::kAttentionToFfnSpec, r);
    const size_t num_places = r.expert_rank_table.shape[1] * r.expert_rank_table.shape[2];
    call.ready(
        ops::attention_to_ffn_workspace_bytes(
            num_tokens, num_slots, r.ffn_windows.size(), num_places),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::attention_to_ffn(r, workspace, parallel);
        },
        [&r] { return ops::reference::attention_to_ffn(r); });
    return {};
}

Result<> prepare_ffn_to_attention(OperatorCall& call) {
    auto& r = call.keep<ops::FfnToAttentionRequest>();
    AFD_TRY(call.fill(ops::kFfnToAttentionSpec, r));
    AFD_TRY(ops::check_ffn_to_attention(r));
    call.ready(
        ops::ffn_to_attention_workspace_bytes(r.x.shape[0]),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::ffn_to_attention(r, workspace, parallel);
        },
        [&r] { return ops::reference::ffn_to_attention(r); });
    return {};
}

}  // namespace afd::calls
