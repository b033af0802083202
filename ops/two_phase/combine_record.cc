// SPDX-License-Identifier: Apache-2.0

// The record of TwoPhaseCombine and the check of a request against it.

#include <string>

#include "ops/two_phase/combine.h"
#include "ops/two_phase/entries.h"

namespace afd::ops {
namespace {

using Request = TwoPhaseCombineRequest;

constexpr AttributeSpec kAttributes[] = {two_phase::kNumRanks<Request>,
                                         two_phase::kNumLocalExperts<Request>,
                                         two_phase::kSharedExpertNum<Request>,
                                         two_phase::kSessionId<Request>,
                                         two_phase::kLayerId<Request>,
                                         two_phase::kBlockSize<Request>,
                                         two_phase::kFirstBlock<Request>,
                                         two_phase::kNumBlocks<Request>};

constexpr DTypeSet kRowTypes{DType::kFp16, DType::kBf16};

constexpr TensorSpec kTensors[] = {
    {"recv_y",
     bind<Request, &Request::recv_y>(),
     TensorRole::kInput,
     kRowTypes,
     "[P, H]",
     "the experts' rows, where two_phase_payload put theirs"},
    two_phase::kExpertIds<Request>,
    {"expert_scales",
     bind<Request, &Request::expert_scales>(),
     TensorRole::kInput,
     {DType::kFp32},
     "[N, K]",
     "weights"},
    two_phase::kExpertRankTable<Request>,
    two_phase::kSortedIndices<Request>,
    two_phase::kSendCounts<Request>,
    two_phase::kBase<Request>,
    two_phase::kDone<Request>,
    {"y",
     bind<Request, &Request::y>(),
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

void check_senders(OperatorCheck& check, const TwoPhaseCombineRequest& r) {
    check.require(r.senders.size() == static_cast<size_t>(r.num_ranks),
                  "senders has {} entries; it must have num_ranks, {}",
                  with(r.senders.size(), r.num_ranks));
    for (size_t rank = 0; rank < r.senders.size(); ++rank) {
        const ConstTensorView& rows = r.senders[rank];
        const size_t hidden = r.y.rank == 2 ? r.y.shape[1] : 0;
        if (rows.rank == 2 && rows.shape[1] == hidden && rows.dtype == r.y.dtype &&
            rows.is_contiguous()) {
            continue;
        }
        check.require(false,
                      "senders[{}] must be contiguous {} [P, {}], as y is",
                      with(rank, name_of(r.y.dtype), hidden));
    }
}

void check_shared_rows(OperatorCheck& check, const TwoPhaseCombineRequest& r) {
    const ConstTensorView& rows = r.shared_rows;
    if (rows.rank == 0) return;
    const bool is_fit = rows.rank == 3 && rows.shape[0] == r.y.shape[0] &&
                        rows.shape[2] == r.y.shape[1] && rows.dtype == r.y.dtype &&
                        rows.is_contiguous();
    check.require(is_fit,
                  "shared_rows must be contiguous [N, J, H] of the dtype of y, [{}, J, {}] {}",
                  with(r.y.shape[0], r.y.shape[1], name_of(r.y.dtype)));
    check.require(r.shared_expert_num == 0,
                  "shared_expert_num is {}; with shared_rows it must be 0",
                  with(r.shared_expert_num));
}

void check_inputs(OperatorCheck& check, const TwoPhaseCombineRequest& r) {
    check_two_phase_blocks(check, r);
    check.tensor("expert_scales");
    if (r.senders.empty()) check.tensor("recv_y");
}

}  // namespace

const RecordOf<TwoPhaseCombineRequest> kTwoPhaseCombineSpec = {
    {"two_phase_combine",
     "the way back of the two-phase dispatch: the weighted sum of each token's rows",
     "y[n] = sum over k of row(n, k) * expert_scales[n, k], plus each shared row; row(f) = "
     "recv_y[base[rank, e] + i], f the i-th slot of (rank, e)",
     "seed two_phase_dispatch; docs/specification.md, sections 5 and 7",
     kAttributes,
     kTensors,
     kRules,
     {}}};

Result<TwoPhaseCombineRequest> with_output_shapes(const TwoPhaseCombineRequest& r) {
    OperatorCheck check(kTwoPhaseCombineSpec, r);
    check_inputs(check, r);
    AFD_TRY(check.finish());
    const ConstTensorView rows = r.rows_of(0);
    TwoPhaseCombineRequest whole = r;
    whole.y = make_tensor<void>(nullptr, rows.dtype, {check.size("N"), rows.shape[1]});
    return whole;
}

Result<> check_two_phase_combine(const TwoPhaseCombineRequest& r, const TwoPhaseScratch& scratch) {
    OperatorCheck check(kTwoPhaseCombineSpec, r);
    check_inputs(check, r);
    check.tensor("y");
    if (r.senders.empty()) {
        check.require(r.y.dtype == r.recv_y.dtype,
                      "y has dtype {}; it must be that of recv_y, {}",
                      with(name_of(r.y.dtype), name_of(r.recv_y.dtype)));
    } else {
        check_senders(check, r);
    }
    check_shared_rows(check, r);
    AFD_TRY(check.finish());
    const auto rows_of_rank = [&](size_t rank) { return r.rows_of(rank).shape[0]; };
    return check_two_phase_values(kTwoPhaseCombineSpec, r, rows_of_rank, scratch);
}

}  // namespace afd::ops
