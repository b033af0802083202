// SPDX-License-Identifier: Apache-2.0

// The record of TwoPhaseLayout and the check of a request against it.

#include "ops/two_phase/entries.h"
#include "ops/two_phase/layout.h"

namespace afd::ops {
namespace {

using Request = TwoPhaseLayoutRequest;

constexpr AttributeSpec kAttributes[] = {two_phase::kNumRanks<Request>,
                                         two_phase::kNumLocalExperts<Request>,
                                         two_phase::kSharedExpertNum<Request>,
                                         two_phase::kSessionId<Request>,
                                         two_phase::kLayerId<Request>,
                                         two_phase::kBlockSize<Request>};

constexpr TensorSpec kTensors[] = {
    two_phase::kExpertIds<Request>,
    two_phase::kExpertRankTable<Request>,
    {"active_mask",
     bind<Request, &Request::active_mask>(),
     TensorRole::kOptionalInput,
     {DType::kBool},
     "[N]",
     "which tokens are sent; not given: all"},
    {"sorted_indices",
     bind<Request, &Request::sorted_indices>(),
     TensorRole::kOutput,
     {DType::kInt32},
     "[N*K+N*shared_expert_num]",
     "each block's slots n*(K+S) + k by rank, local expert, slot; then -1"},
    {"send_counts",
     bind<Request, &Request::send_counts>(),
     TensorRole::kOutput,
     {DType::kInt32},
     "[num_ranks, num_local_experts]",
     "rows for each rank and local expert"},
    {"send_offsets",
     bind<Request, &Request::send_offsets>(),
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[num_ranks, num_local_experts]",
     "exclusive prefix sums of send_counts"},
};

constexpr std::string_view kRules[] = {two_phase::kTableRule, two_phase::kSlotsRule};

constexpr std::string_view kLifted[] = {"tokens whose indices fit into the on-chip buffer"};

}  // namespace

const RecordOf<TwoPhaseLayoutRequest> kTwoPhaseLayoutSpec = {
    {"two_phase_layout",
     "phase 1 of the two-phase dispatch: counts and sorted indices from the expert ids alone",
     "sorted_indices = stable sort of each block's slots by (rank, local expert); "
     "send_counts[rank, "
     "e] = slots of that key",
     "seed two_phase_dispatch; docs/specification.md, section 7",
     kAttributes,
     kTensors,
     kRules,
     kLifted}};

Result<> check_two_phase_layout_shapes(const TwoPhaseLayoutRequest& r) {
    OperatorCheck check(kTwoPhaseLayoutSpec, r);
    check_two_phase_routing(check, r);
    check.tensors();
    return check.finish();
}

Result<> check_two_phase_layout(const TwoPhaseLayoutRequest& r, std::span<uint8_t> held) {
    AFD_TRY(check_two_phase_layout_shapes(r));
    return check_two_phase_table(kTwoPhaseLayoutSpec, r, held);
}

}  // namespace afd::ops
