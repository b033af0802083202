// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/combine.h"

#include <algorithm>
#include <string>

#include "ops/experts/combine.h"
#include "ops/two_phase/spec.h"

namespace afd::ops {
namespace {

constexpr AttributeSpec kAttributes[] = {two_phase::kNumRanks,
                                         two_phase::kNumLocalExperts,
                                         two_phase::kSharedExpertNum,
                                         two_phase::kSessionId,
                                         two_phase::kLayerId,
                                         two_phase::kBlockSize,
                                         two_phase::kFirstBlock,
                                         two_phase::kNumBlocks};

constexpr DTypeSet kRowTypes{DType::kFp16, DType::kBf16};

constexpr TensorSpec kTensors[] = {
    {"recv_y",
     TensorRole::kInput,
     kRowTypes,
     "[P, H]",
     "the experts' rows, where two_phase_payload put theirs"},
    two_phase::kExpertIds,
    {"expert_scales", TensorRole::kInput, {DType::kFp32}, "[N, K]", "weights"},
    two_phase::kExpertRankTable,
    two_phase::kSortedIndices,
    two_phase::kSendCounts,
    two_phase::kBase,
    two_phase::kDone,
    {"y",
     TensorRole::kOutput,
     kRowTypes,
     "[N, H]",
     "sums, one row a token; tokens of other blocks are untouched"},
};

constexpr std::string_view kRules[] = {
    two_phase::kTableRule,
    two_phase::kSlotsRule,
    two_phase::kBlocksRule,
    two_phase::kIndicesRule,
    two_phase::kBaseRule,
    "y has the dtype of recv_y.",
};

ConstTensorView rows_of(const TwoPhaseCombineRequest& r, size_t rank) {
    return r.senders.empty() ? r.recv_y : r.senders[rank];
}

void check_senders(OperatorCheck& check, const TwoPhaseCombineRequest& r) {
    check.require(r.senders.size() == static_cast<size_t>(r.num_ranks),
                  "senders has " + std::to_string(r.senders.size()) +
                      " entries; it must have num_ranks, " + std::to_string(r.num_ranks));
    for (size_t rank = 0; rank < r.senders.size(); ++rank) {
        const ConstTensorView& rows = r.senders[rank];
        const size_t hidden = r.y.rank == 2 ? r.y.shape[1] : 0;
        if (rows.rank == 2 && rows.shape[1] == hidden && rows.dtype == r.y.dtype &&
            rows.is_contiguous()) {
            continue;
        }
        check.require(false,
                      "senders[" + std::to_string(rank) + "] must be contiguous " +
                          std::string(name_of(r.y.dtype)) + " [P, " + std::to_string(hidden) +
                          "], as y is");
    }
}

void check_shared_rows(OperatorCheck& check, const TwoPhaseCombineRequest& r) {
    const ConstTensorView& rows = r.shared_rows;
    if (rows.rank == 0) return;
    const bool is_fit = rows.rank == 3 && rows.shape[0] == r.y.shape[0] &&
                        rows.shape[2] == r.y.shape[1] && rows.dtype == r.y.dtype &&
                        rows.is_contiguous();
    check.require(is_fit,
                  "shared_rows must be contiguous [N, J, H] of the dtype of y, [" +
                      std::to_string(r.y.shape[0]) + ", J, " + std::to_string(r.y.shape[1]) + "] " +
                      std::string(name_of(r.y.dtype)));
    check.require(r.shared_expert_num == 0,
                  "shared_expert_num is " + std::to_string(r.shared_expert_num) +
                      "; with shared_rows it must be 0");
}

void check_inputs(OperatorCheck& check, const TwoPhaseCombineRequest& r) {
    check_two_phase_blocks(check, r);
    check.tensor("expert_scales", r.expert_scales);
    if (r.senders.empty()) check.tensor("recv_y", r.recv_y);
}

// The tokens of one block. `row_address` has an entry for every slot of it.
template <typename T>
void combine_block(const TwoPhaseCombineRequest& r,
                   const TwoPhaseSlots& slots,
                   size_t block,
                   const std::byte* const* row_address,
                   Parallel& parallel) {
    const size_t hidden = r.y.shape[1];
    const size_t first_token = slots.first_token(block);
    const size_t num_tokens = slots.first_token(block + 1) - first_token;
    BasicCombineRequest<T> request;
    request.num_tokens = num_tokens;
    request.top_k = slots.top_k();
    request.num_shared = slots.slots_per_token() - slots.top_k();
    if (r.shared_rows.rank == 3) {
        request.num_shared = r.shared_rows.shape[1];
        request.shared_rows = make_rows(
            static_cast<const T*>(r.shared_rows.data) + first_token * request.num_shared * hidden,
            num_tokens * request.num_shared,
            hidden);
    }
    request.topk_weights =
        static_cast<const float*>(r.expert_scales.data) + first_token * slots.top_k();
    request.row_address = row_address;
    request.out = make_rows(static_cast<T*>(r.y.data) + first_token * hidden, num_tokens, hidden);
    combine(request, parallel);
}

}  // namespace

const OperatorSpec kTwoPhaseCombineSpec = {
    "two_phase_combine",
    "the way back of the two-phase dispatch: the weighted sum of each token's rows",
    "y[n] = sum over k of row(n, k) * expert_scales[n, k], plus each shared row; row(f) = "
    "recv_y[base[rank, e] + i], f the i-th slot of (rank, e)",
    "two_phase_dispatch.md; operators.md 5, 7",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<TwoPhaseCombineShapes> two_phase_combine_shapes(const TwoPhaseCombineRequest& r) {
    OperatorCheck check(kTwoPhaseCombineSpec);
    check_inputs(check, r);
    AFD_TRY(check.finish());
    const ConstTensorView rows = rows_of(r, 0);
    return TwoPhaseCombineShapes{
        make_tensor<void>(nullptr, rows.dtype, {check.size("N"), rows.shape[1]})};
}

Result<> check_two_phase_combine(const TwoPhaseCombineRequest& r, const TwoPhaseScratch& scratch) {
    OperatorCheck check(kTwoPhaseCombineSpec);
    check_inputs(check, r);
    check.tensor("y", r.y);
    if (r.senders.empty()) {
        check.require(r.y.dtype == r.recv_y.dtype,
                      "y has dtype " + std::string(name_of(r.y.dtype)) +
                          "; it must be that of recv_y, " + std::string(name_of(r.recv_y.dtype)));
    } else {
        check_senders(check, r);
    }
    check_shared_rows(check, r);
    AFD_TRY(check.finish());
    const auto rows_of_rank = [&](size_t rank) { return rows_of(r, rank).shape[0]; };
    return check_two_phase_values(kTwoPhaseCombineSpec, r, rows_of_rank, scratch);
}

size_t two_phase_combine_workspace_bytes(const TwoPhaseCombineRequest& request) {
    return two_phase_scratch_bytes(request) +
           workspace_bytes_of<const std::byte*>(two_phase_block_slots(request));
}

Result<> two_phase_combine(const TwoPhaseCombineRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel) {
    WorkspaceCursor cursor(workspace);
    const TwoPhaseScratch scratch = take_two_phase_scratch(request, cursor);
    AFD_TRY(check_two_phase_combine(request, scratch));
    TwoPhaseWalk walk(request, scratch);
    const TwoPhaseSlots& slots = walk.slots();
    const size_t row_bytes = request.y.shape[1] * size_of(request.y.dtype);
    auto** row_address = cursor.take<const std::byte*>(slots.block_slots());
    for (size_t block = walk.first_block(); block < walk.end_block(); ++block) {
        const size_t first_slot = slots.first_slot(block);
        std::fill_n(row_address, slots.first_slot(block + 1) - first_slot, nullptr);
        walk.for_each(block, [&](const TwoPhasePlace& place) {
            const size_t rank = static_cast<size_t>(place.key) / slots.num_local_experts();
            const auto* rows = static_cast<const std::byte*>(rows_of(request, rank).data);
            row_address[place.slot - first_slot] = rows + place.row * row_bytes;
        });
        if (request.y.dtype == DType::kFp16) {
            combine_block<Fp16>(request, slots, block, row_address, parallel);
        } else {
            combine_block<Bf16>(request, slots, block, row_address, parallel);
        }
    }
    walk.finish();
    return {};
}

}  // namespace afd::ops
