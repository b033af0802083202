// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/attention_to_ffn.h"
#include "ops/operators/ffn_to_attention.h"
#include "ops/reference/attention_to_ffn.h"
#include "ops/reference/ffn_to_attention.h"
#include "tools/afd-op/context_call.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
namespace {

using ops::TensorView;

// The windows of a tensor [workers, bytes], one span a worker.
std::vector<std::span<std::byte>> windows_of(const TensorView& view) {
    std::vector<std::span<std::byte>> windows;
    if (view.rank != 2) return windows;
    for (size_t i = 0; i < view.shape[0]; ++i) {
        windows.push_back({static_cast<std::byte*>(view.data) + i * view.shape[1], view.shape[1]});
    }
    return windows;
}

}  // namespace

Result<> run_attention_to_ffn(OperatorCall& call) {
    ops::AttentionToFfnRequest r;
    r.session_id = call.integer("session_id");
    r.micro_batch_id = call.integer("micro_batch_id");
    r.layer_id = call.integer("layer_id");
    r.quant_mode = call.integer("quant_mode");
    r.sync_flag = call.integer("sync_flag");
    r.round = call.integer("round");
    AFD_ASSIGN(r.context, context_input(call, ops::kAttentionToFfnSpec));
    const auto windows = windows_of(call.in_place("ffn_windows"));
    r.ffn_windows = windows;
    r.x = call.input("x");
    r.expert_ids = call.input("expert_ids");
    r.expert_rank_table = call.input("expert_rank_table");
    r.scales = call.input("scales");
    r.active_mask = call.input("active_mask");
    const size_t num_slots = r.context->common.selected_expert_num;
    const size_t num_tokens = r.x.rank == 0 ? 0 : r.x.shape[0];
    // A context that says more slots than there can be is refused without memory for them.
    if (num_slots <= schedule::kSelectedExpertsMax) {
        r.slot_ranks = call.output("slot_ranks", ops::DType::kInt32, {num_tokens, num_slots});
    }
    AFD_TRY(ops::check_attention_to_ffn(r));
    if (call.is_reference()) return ops::reference::attention_to_ffn(r);
    const size_t bytes =
        ops::attention_to_ffn_workspace_bytes(num_tokens, num_slots, windows.size());
    return ops::attention_to_ffn(r, call.workspace(bytes), call.parallel());
}

Result<> run_ffn_to_attention(OperatorCall& call) {
    ops::FfnToAttentionRequest r;
    r.token_dtype = call.integer("token_dtype");
    AFD_ASSIGN(r.context, context_input(call, ops::kFfnToAttentionSpec));
    const auto windows = windows_of(call.in_place("attention_windows"));
    r.attention_windows = windows;
    r.x = call.input("x");
    r.session_ids = call.input("session_ids");
    r.micro_batch_ids = call.input("micro_batch_ids");
    r.token_ids = call.input("token_ids");
    r.expert_offsets = call.input("expert_offsets");
    r.actual_token_num = call.input("actual_token_num");
    r.routing_weights = call.input("routing_weights");
    r.rounds = call.input("rounds");
    AFD_TRY(ops::check_ffn_to_attention(r));
    if (call.is_reference()) return ops::reference::ffn_to_attention(r);
    const size_t bytes = ops::ffn_to_attention_workspace_bytes(r.x.shape[0]);
    return ops::ffn_to_attention(r, call.workspace(bytes), call.parallel());
}

}  // namespace afd::tools
