// SPDX-License-Identifier: Apache-2.0

// The record of TwoPhasePayload and the check of a request against it.

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "ops/two_phase/entries.h"
#include "ops/two_phase/payload.h"

namespace afd::ops {
namespace {

using Request = TwoPhasePayloadRequest;

constexpr int64_t kQuantModes[] = {-1, 1};

constexpr AttributeSpec kAttributes[] = {
    two_phase::kNumRanks<Request>,
    two_phase::kNumLocalExperts<Request>,
    two_phase::kSharedExpertNum<Request>,
    two_phase::kSessionId<Request>,
    two_phase::kLayerId<Request>,
    two_phase::kBlockSize<Request>,
    two_phase::kFirstBlock<Request>,
    two_phase::kNumBlocks<Request>,
    {"quant_mode",
     bind<Request, &Request::quant_mode>(),
     "-1",
     kQuantModes,
     0,
     0,
     "rows as they are; int8 by dynamic quantisation"},
};

constexpr TensorSpec kTensors[] = {
    {"x",
     bind<Request, &Request::x>(),
     TensorRole::kInput,
     {DType::kFp32, DType::kFp16, DType::kBf16},
     "[N, H]",
     "token rows"},
    two_phase::kExpertIds<Request>,
    two_phase::kExpertRankTable<Request>,
    {"scales",
     bind<Request, &Request::scales>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[L, X, H]",
     "smooth scales"},
    two_phase::kSortedIndices<Request>,
    two_phase::kSendCounts<Request>,
    two_phase::kBase<Request>,
    two_phase::kDone<Request>,
    {"recv_x",
     bind<Request, &Request::recv_x>(),
     TensorRole::kInPlace,
     {DType::kFp32, DType::kFp16, DType::kBf16, DType::kInt8},
     "[P, H]",
     "the receivers' rows; those of other senders stay"},
    {"recv_scale",
     bind<Request, &Request::recv_scale>(),
     TensorRole::kOptionalInPlace,
     {DType::kFp32},
     "[P]",
     "scale of each row, with quant_mode 1"},
};

constexpr std::string_view kRules[] = {
    two_phase::kTableRule,
    two_phase::kSlotsRule,
    two_phase::kBlocksRule,
    two_phase::kIndicesRule,
    two_phase::kBaseRule,
    "recv_x has the dtype of x, int8 with quant_mode 1; recv_scale and scales are for quant_mode "
    "1, and recv_scale is needed there.",
};

std::string shape_of(const ConstTensorView& view) {
    std::string text = std::string(name_of(view.dtype)) + " [";
    for (size_t axis = 0; axis < view.rank; ++axis) {
        text += (axis == 0 ? "" : ", ") + std::to_string(view.shape[axis]);
    }
    return text + "]";
}

void check_receivers(OperatorCheck& check, const TwoPhasePayloadRequest& r) {
    const size_t hidden = r.x.rank == 2 ? r.x.shape[1] : 0;
    check.require(r.receivers.size() == static_cast<size_t>(r.num_ranks),
                  "receivers has {} entries; it must have num_ranks, {}",
                  with(r.receivers.size(), r.num_ranks));
    const DType dtype = r.quant_mode == 1 ? DType::kInt8 : r.x.dtype;
    for (size_t rank = 0; rank < r.receivers.size(); ++rank) {
        const auto& [recv_x, recv_scale] = r.receivers[rank];
        const bool has_rows = recv_x.rank == 2 && recv_x.shape[1] == hidden &&
                              recv_x.dtype == dtype && recv_x.is_contiguous();
        const bool has_scales = r.quant_mode != 1 || recv_x.num_elements() == 0 ||
                                (recv_scale.rank == 1 && recv_scale.shape[0] == recv_x.shape[0] &&
                                 recv_scale.dtype == DType::kFp32 && recv_scale.is_contiguous());
        if (has_rows && has_scales) continue;
        check.require(false,
                      "receivers[{}] has recv_x {} and recv_scale {}; it must have {} [P, {}] and, "
                      "with quant_mode 1, fp32 [P]",
                      with(rank, shape_of(recv_x), shape_of(recv_scale), name_of(dtype), hidden));
    }
}

void check_buffer(OperatorCheck& check, const TwoPhasePayloadRequest& r) {
    check.tensor("recv_x");
    check.tensor("recv_scale");
    const DType wanted = r.quant_mode == 1 ? DType::kInt8 : r.x.dtype;
    check.require(r.recv_x.dtype == wanted,
                  "recv_x has dtype {}; it must be {} with quant_mode {}",
                  with(name_of(r.recv_x.dtype), name_of(wanted), r.quant_mode));
    check.require(
        r.quant_mode == -1 || r.recv_x.num_elements() == 0 || r.recv_scale.num_elements() > 0,
        "recv_scale is missing; it must be [P] with quant_mode 1");
}

// Rows of two grants at one place would be written over each other. `order`: scratch.
void check_overlaps(OperatorCheck& check,
                    const TwoPhasePayloadRequest& r,
                    std::span<int64_t> order) {
    const auto* base = static_cast<const int64_t*>(r.base.data);
    const auto* counts = static_cast<const int32_t*>(r.send_counts.data);
    // The ranks' grants are into buffers of their own, or all into one.
    const auto buffer_of = [&](int64_t key) {
        return r.receivers.empty() ? 0 : key / r.num_local_experts;
    };
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto* end = std::partition(
        order.data(), order.data() + order.size(), [&](int64_t key) { return counts[key] > 0; });
    const size_t num_granted = static_cast<size_t>(end - order.data());
    std::sort(order.begin(), order.begin() + num_granted, [&](int64_t a, int64_t b) {
        return std::pair(buffer_of(a), base[a]) < std::pair(buffer_of(b), base[b]);
    });
    for (size_t i = 1; i < num_granted; ++i) {
        const int64_t before = order[i - 1];
        const int64_t key = order[i];
        if (buffer_of(before) != buffer_of(key)) continue;
        if (base[before] + counts[before] <= base[key]) continue;
        check.require(false,
                      "base[{}, {}] is {}; the grant at base[{}, {}], {} rows from {}, overlaps it",
                      with(key / r.num_local_experts,
                           key % r.num_local_experts,
                           base[key],
                           before / r.num_local_experts,
                           before % r.num_local_experts,
                           counts[before],
                           base[before]));
    }
}

}  // namespace

const RecordOf<TwoPhasePayloadRequest> kTwoPhasePayloadSpec = {
    {"two_phase_payload",
     "phase 2 of the two-phase dispatch: rows, optionally quantised, straight to their places",
     "recv_x[base[rank, e] + i] = op(x[f div (K+S)]), f the i-th slot of (rank, e)",
     "seed two_phase_dispatch; docs/specification.md, section 7",
     kAttributes,
     kTensors,
     kRules,
     {}}};

Result<> check_two_phase_payload_shapes(const TwoPhasePayloadRequest& r) {
    OperatorCheck check(kTwoPhasePayloadSpec, r);
    check.attribute("quant_mode");
    check.tensor("x");
    check_two_phase_blocks(check, r);
    check.tensor("scales");
    check.require(r.quant_mode == 1 || r.scales.num_elements() == 0,
                  "quant_mode is -1; scales are for quant_mode 1");
    if (r.receivers.empty()) {
        check_buffer(check, r);
    } else {
        check_receivers(check, r);
    }
    return check.finish();
}

Result<> check_two_phase_payload(const TwoPhasePayloadRequest& r, const TwoPhaseScratch& scratch) {
    AFD_TRY(check_two_phase_payload_shapes(r));
    const auto rows_of_rank = [&](size_t rank) { return r.receiver_of(rank).recv_x.shape[0]; };
    AFD_TRY(check_two_phase_values(kTwoPhasePayloadSpec, r, rows_of_rank, scratch));
    OperatorCheck check(kTwoPhasePayloadSpec);
    check_overlaps(check, r, scratch.next);
    return check.finish();
}

}  // namespace afd::ops
