// SPDX-License-Identifier: Apache-2.0
#include "calls/prepare_operators.h"
#include "ops/record/operator_check.h"
#include "ops/reference/two_phase.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/offsets.h"
#include "ops/two_phase/payload.h"

namespace afd::calls {
using ops::DType;

namespace {

// The tables of the blocks have a row for each expert of each rank, and one for each slot.
void name_sources(OperatorCall& call) {
    call.workspace_grows_with(
        {"num_ranks", "num_local_experts", "shared_expert_num", "expert_ids"});
}

}  // namespace

Result<> prepare_two_phase_layout(OperatorCall& call) {
    auto& r = call.keep<ops::TwoPhaseLayoutRequest>();
    AFD_TRY(call.fill(ops::kTwoPhaseLayoutSpec, r));
    // Shapes and scratch are made of attributes.
    ops::OperatorCheck check(ops::kTwoPhaseLayoutSpec, r);
    check.attributes();
    AFD_TRY(check.finish());
    const size_t num_keys = ops::two_phase_num_keys(r);
    const auto num_ranks = static_cast<size_t>(r.num_ranks);
    const auto num_shared = static_cast<size_t>(r.shared_expert_num);
    const size_t num_slots = extent(r.expert_ids, 0) * (extent(r.expert_ids, 1) + num_shared);
    r.sorted_indices = shape_of(DType::kInt32, {num_slots});
    r.send_counts = shape_of(DType::kInt32, {num_ranks, num_keys / num_ranks});
    r.send_offsets = shape_of(DType::kInt64, {num_ranks, num_keys / num_ranks});
    AFD_TRY(ops::check_two_phase_layout_shapes(r));
    call.returns(ops::kTwoPhaseLayoutSpec, r);
    name_sources(call);
    call.ready(
        ops::two_phase_layout_workspace_bytes(r, call.parallel().num_threads()),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::two_phase_layout(r, workspace, parallel);
        },
        [&r] { return ops::reference::two_phase_layout(r); });
    return {};
}

Result<> prepare_two_phase_offsets(OperatorCall& call) {
    auto& r = call.keep<ops::TwoPhaseOffsetsRequest>();
    AFD_TRY(call.fill(ops::kTwoPhaseOffsetsSpec, r));
    const size_t num_senders = extent(r.send_counts, 0);
    const size_t num_ranks = extent(r.send_counts, 1);
    const size_t num_experts = extent(r.send_counts, 2);
    r.base = shape_of(DType::kInt64, {num_senders, num_ranks, num_experts});
    r.recv_counts = shape_of(DType::kInt64, {num_ranks, num_senders});
    r.recv_total = shape_of(DType::kInt64, {num_ranks});
    r.group_list = shape_of(DType::kInt64, {num_ranks, num_experts});
    AFD_TRY(ops::check_two_phase_offsets(r));
    call.returns(ops::kTwoPhaseOffsetsSpec, r);
    call.ready(
        ops::two_phase_offsets_workspace_bytes(),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::two_phase_offsets(r, workspace, parallel);
        },
        [&r] { return ops::reference::two_phase_offsets(r); });
    return {};
}

Result<> prepare_two_phase_payload(OperatorCall& call) {
    auto& r = call.keep<ops::TwoPhasePayloadRequest>();
    AFD_TRY(call.fill(ops::kTwoPhasePayloadSpec, r));
    AFD_TRY(ops::check_two_phase_payload_shapes(r));
    name_sources(call);
    call.ready(
        ops::two_phase_payload_workspace_bytes(r),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::two_phase_payload(r, workspace, parallel);
        },
        [&r] { return ops::reference::two_phase_payload(r); });
    return {};
}

Result<> prepare_two_phase_combine(OperatorCall& call) {
    auto& r = call.keep<ops::TwoPhaseCombineRequest>();
    AFD_TRY(call.fill(ops::kTwoPhaseCombineSpec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.returns(ops::kTwoPhaseCombineSpec, r);
    name_sources(call);
    call.ready(
        ops::two_phase_combine_workspace_bytes(r),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::two_phase_combine(r, workspace, parallel);
        },
        [&r] { return ops::reference::two_phase_combine(r); });
    return {};
}

}  // namespace afd::calls
