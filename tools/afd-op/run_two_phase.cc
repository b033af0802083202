// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/reference/two_phase.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
namespace {

using ops::ConstTensorView;
using ops::DType;

void take_routing(const OperatorCall& call, ops::TwoPhaseRouting& r) {
    r.num_ranks = call.integer("num_ranks");
    r.num_local_experts = call.integer("num_local_experts");
    r.shared_expert_num = call.integer("shared_expert_num");
    r.session_id = call.integer("session_id");
    r.layer_id = call.integer("layer_id");
    r.block_size = call.integer("block_size");
    r.expert_ids = call.input("expert_ids");
    r.expert_rank_table = call.input("expert_rank_table");
}

void take_blocks(OperatorCall& call, ops::TwoPhaseBlocks& r) {
    take_routing(call, r);
    r.first_block = call.integer("first_block");
    r.num_blocks = call.integer("num_blocks");
    r.sorted_indices = call.input("sorted_indices");
    r.send_counts = call.input("send_counts");
    r.base = call.input("base");
    r.done = call.in_place("done");
}

}  // namespace

Result<> run_two_phase_layout(OperatorCall& call) {
    ops::TwoPhaseLayoutRequest r;
    take_routing(call, r);
    r.active_mask = call.input("active_mask");
    // Scratch first: its size is made of legal values, and so are those of the outputs.
    const std::span<std::byte> workspace =
        call.workspace(ops::two_phase_layout_workspace_bytes(r, call.parallel().num_threads()));
    const size_t num_keys = ops::two_phase_num_keys(r);
    const auto num_ranks = static_cast<size_t>(std::clamp<int64_t>(r.num_ranks, 1, 1024));
    const auto num_shared = static_cast<size_t>(std::clamp<int64_t>(r.shared_expert_num, 0, 4));
    const size_t num_slots = extent(r.expert_ids, 0) * (extent(r.expert_ids, 1) + num_shared);
    r.sorted_indices = call.output("sorted_indices", DType::kInt32, {num_slots});
    r.send_counts = call.output("send_counts", DType::kInt32, {num_ranks, num_keys / num_ranks});
    r.send_offsets = call.output("send_offsets", DType::kInt64, {num_ranks, num_keys / num_ranks});
    if (call.is_reference()) return ops::reference::two_phase_layout(r);
    return ops::two_phase_layout(r, workspace, call.parallel());
}

Result<> run_two_phase_offsets(OperatorCall& call) {
    ops::TwoPhaseOffsetsRequest r;
    r.one_buffer = call.flag("one_buffer");
    r.send_counts = call.input("send_counts");
    const size_t num_senders = extent(r.send_counts, 0);
    const size_t num_ranks = extent(r.send_counts, 1);
    const size_t num_experts = extent(r.send_counts, 2);
    r.base = call.output("base", DType::kInt64, {num_senders, num_ranks, num_experts});
    r.recv_counts = call.output("recv_counts", DType::kInt64, {num_ranks, num_senders});
    r.recv_total = call.output("recv_total", DType::kInt64, {num_ranks});
    r.group_list = call.output("group_list", DType::kInt64, {num_ranks, num_experts});
    if (call.is_reference()) return ops::reference::two_phase_offsets(r);
    return ops::two_phase_offsets(
        r, call.workspace(ops::two_phase_offsets_workspace_bytes()), call.parallel());
}

Result<> run_two_phase_payload(OperatorCall& call) {
    ops::TwoPhasePayloadRequest r;
    take_blocks(call, r);
    r.quant_mode = call.integer("quant_mode");
    r.x = call.input("x");
    r.scales = call.input("scales");
    r.recv_x = call.in_place("recv_x");
    r.recv_scale = call.in_place("recv_scale");
    if (call.is_reference()) return ops::reference::two_phase_payload(r);
    return ops::two_phase_payload(
        r, call.workspace(ops::two_phase_payload_workspace_bytes(r)), call.parallel());
}

Result<> run_two_phase_combine(OperatorCall& call) {
    ops::TwoPhaseCombineRequest r;
    take_blocks(call, r);
    r.expert_scales = call.input("expert_scales");
    r.recv_y = call.input("recv_y");
    AFD_ASSIGN(const ops::TwoPhaseCombineShapes shapes, ops::two_phase_combine_shapes(r));
    r.y = call.output_like("y", shapes.y);
    if (call.is_reference()) return ops::reference::two_phase_combine(r);
    return ops::two_phase_combine(
        r, call.workspace(ops::two_phase_combine_workspace_bytes(r)), call.parallel());
}

}  // namespace afd::tools
