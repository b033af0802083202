// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/reference/two_phase.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
using ops::DType;

Result<> run_two_phase_layout(OperatorCall& call) {
    ops::TwoPhaseLayoutRequest r;
    AFD_TRY(call.fill(ops::kTwoPhaseLayoutSpec, r));
    // Scratch first: its size is made of legal values, and so are those of the outputs.
    const std::span<std::byte> workspace =
        call.workspace(ops::two_phase_layout_workspace_bytes(r, call.parallel().num_threads()));
    const size_t num_keys = ops::two_phase_num_keys(r);
    const auto num_ranks = static_cast<size_t>(std::clamp<int64_t>(r.num_ranks, 1, 1024));
    const auto num_shared = static_cast<size_t>(std::clamp<int64_t>(r.shared_expert_num, 0, 4));
    const size_t num_slots = extent(r.expert_ids, 0) * (extent(r.expert_ids, 1) + num_shared);
    r.sorted_indices = shape_of(DType::kInt32, {num_slots});
    r.send_counts = shape_of(DType::kInt32, {num_ranks, num_keys / num_ranks});
    r.send_offsets = shape_of(DType::kInt64, {num_ranks, num_keys / num_ranks});
    call.make_outputs(ops::kTwoPhaseLayoutSpec, r);
    if (call.is_reference()) return ops::reference::two_phase_layout(r);
    return ops::two_phase_layout(r, workspace, call.parallel());
}

Result<> run_two_phase_offsets(OperatorCall& call) {
    ops::TwoPhaseOffsetsRequest r;
    AFD_TRY(call.fill(ops::kTwoPhaseOffsetsSpec, r));
    const size_t num_senders = extent(r.send_counts, 0);
    const size_t num_ranks = extent(r.send_counts, 1);
    const size_t num_experts = extent(r.send_counts, 2);
    r.base = shape_of(DType::kInt64, {num_senders, num_ranks, num_experts});
    r.recv_counts = shape_of(DType::kInt64, {num_ranks, num_senders});
    r.recv_total = shape_of(DType::kInt64, {num_ranks});
    r.group_list = shape_of(DType::kInt64, {num_ranks, num_experts});
    call.make_outputs(ops::kTwoPhaseOffsetsSpec, r);
    if (call.is_reference()) return ops::reference::two_phase_offsets(r);
    return ops::two_phase_offsets(
        r, call.workspace(ops::two_phase_offsets_workspace_bytes()), call.parallel());
}

Result<> run_two_phase_payload(OperatorCall& call) {
    ops::TwoPhasePayloadRequest r;
    AFD_TRY(call.fill(ops::kTwoPhasePayloadSpec, r));
    if (call.is_reference()) return ops::reference::two_phase_payload(r);
    return ops::two_phase_payload(
        r, call.workspace(ops::two_phase_payload_workspace_bytes(r)), call.parallel());
}

Result<> run_two_phase_combine(OperatorCall& call) {
    ops::TwoPhaseCombineRequest r;
    AFD_TRY(call.fill(ops::kTwoPhaseCombineSpec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.make_outputs(ops::kTwoPhaseCombineSpec, r);
    if (call.is_reference()) return ops::reference::two_phase_combine(r);
    return ops::two_phase_combine(
        r, call.workspace(ops::two_phase_combine_workspace_bytes(r)), call.parallel());
}

}  // namespace afd::tools
