// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/ffn_to_attention.h"
#include "ops/reference/attention_to_ffn.h"
#include "ops/reference/ffn_to_attention.h"
#include "schedule/schedule_context.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
Result<> run_attention_to_ffn(OperatorCall& call) {
    ops::AttentionToFfnRequest r;
    AFD_TRY(call.fill(ops::kAttentionToFfnSpec, r));
    const size_t num_slots = r.context->common.selected_expert_num;
    const size_t num_tokens = extent(r.x, 0);
    // A context that says more slots than there can be is refused without memory for them.
    if (num_slots <= schedule::kSelectedExpertsMax) {
        r.slot_ranks = shape_of(ops::DType::kInt32, {num_tokens, num_slots});
    }
    call.make_outputs(ops::kAttentionToFfnSpec, r);
    AFD_TRY(ops::check_attention_to_ffn(r));
    if (call.is_reference()) return ops::reference::attention_to_ffn(r);
    const size_t bytes =
        ops::attention_to_ffn_workspace_bytes(num_tokens, num_slots, r.ffn_windows.size());
    return ops::attention_to_ffn(r, call.workspace(bytes), call.parallel());
}

Result<> run_ffn_to_attention(OperatorCall& call) {
    ops::FfnToAttentionRequest r;
    AFD_TRY(call.fill(ops::kFfnToAttentionSpec, r));
    AFD_TRY(ops::check_ffn_to_attention(r));
    if (call.is_reference()) return ops::reference::ffn_to_attention(r);
    const size_t bytes = ops::ffn_to_attention_workspace_bytes(r.x.shape[0]);
    return ops::ffn_to_attention(r, call.workspace(bytes), call.parallel());
}

}  // namespace afd::tools
