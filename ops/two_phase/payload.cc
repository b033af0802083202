// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/payload.h"

#include <cstring>
#include <string>

#include "ops/linear/quantise.h"
#include "ops/tensor/row_tasks.h"
#include "ops/two_phase/spec.h"

namespace afd::ops {
namespace {

constexpr int64_t kQuantModes[] = {-1, 1};

constexpr AttributeSpec kAttributes[] = {
    two_phase::kNumRanks,
    two_phase::kNumLocalExperts,
    two_phase::kSharedExpertNum,
    two_phase::kSessionId,
    two_phase::kLayerId,
    two_phase::kBlockSize,
    two_phase::kFirstBlock,
    two_phase::kNumBlocks,
    {"quant_mode",
     AttributeKind::kInt,
     "-1",
     kQuantModes,
     0,
     0,
     "rows as they are; int8 by dynamic quantisation"},
};

constexpr TensorSpec kTensors[] = {
    {"x", TensorRole::kInput, {DType::kFp32, DType::kFp16, DType::kBf16}, "[N, H]", "token rows"},
    two_phase::kExpertIds,
    two_phase::kExpertRankTable,
    {"scales", TensorRole::kOptionalInput, {DType::kFp32}, "[L, X, H]", "smooth scales"},
    two_phase::kSortedIndices,
    two_phase::kSendCounts,
    two_phase::kBase,
    two_phase::kDone,
    {"recv_x",
     TensorRole::kInPlace,
     {DType::kFp32, DType::kFp16, DType::kBf16, DType::kInt8},
     "[P, H]",
     "the receivers' rows; those of other senders stay"},
    {"recv_scale",
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

// The segments of a request, however they are given.
TwoPhaseReceiver receiver_of(const TwoPhasePayloadRequest& r, size_t rank) {
    return r.receivers.empty() ? TwoPhaseReceiver{r.recv_x, r.recv_scale} : r.receivers[rank];
}

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
                  "receivers has " + std::to_string(r.receivers.size()) +
                      " entries; it must have num_ranks, " + std::to_string(r.num_ranks));
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
                      "receivers[" + std::to_string(rank) + "] has recv_x " + shape_of(recv_x) +
                          " and recv_scale " + shape_of(recv_scale) + "; it must have " +
                          std::string(name_of(dtype)) + " [P, " + std::to_string(hidden) +
                          "] and, with quant_mode 1, fp32 [P]");
    }
}

void check_buffer(OperatorCheck& check, const TwoPhasePayloadRequest& r) {
    check.tensor("recv_x", r.recv_x);
    check.tensor("recv_scale", r.recv_scale);
    const DType wanted = r.quant_mode == 1 ? DType::kInt8 : r.x.dtype;
    check.require(r.recv_x.dtype == wanted,
                  "recv_x has dtype " + std::string(name_of(r.recv_x.dtype)) + "; it must be " +
                      std::string(name_of(wanted)) + " with quant_mode " +
                      std::to_string(r.quant_mode));
    check.require(
        r.quant_mode == -1 || r.recv_x.num_elements() == 0 || r.recv_scale.num_elements() > 0,
        "recv_scale is missing; it must be [P] with quant_mode 1");
}

// Writes rows at their places.
class Sender {
  public:
    Sender(const TwoPhasePayloadRequest& r, const TwoPhaseSlots& slots)
        : r_(r),
          slots_(slots),
          hidden_(r.x.shape[1]),
          x_row_bytes_(hidden_ * size_of(r.x.dtype)),
          smooth_(static_cast<const float*>(r.scales.data)) {
        if (r.scales.num_elements() == 0) {
            smooth_ = nullptr;
        } else {
            smooth_ += static_cast<size_t>(r.layer_id) * r.scales.shape[1] * hidden_;
        }
    }

    size_t row_bytes() const { return x_row_bytes_; }

    void send(const TwoPhasePlace& place) const {
        const size_t rank = static_cast<size_t>(place.key) / slots_.num_local_experts();
        const TwoPhaseReceiver receiver = receiver_of(r_, rank);
        const std::byte* x = static_cast<const std::byte*>(r_.x.data) +
                             place.slot / slots_.slots_per_token() * x_row_bytes_;
        if (r_.quant_mode == -1) {
            auto* out = static_cast<std::byte*>(receiver.recv_x.data) + place.row * x_row_bytes_;
            if (r_.row_writer == nullptr) {
                std::memcpy(out, x, x_row_bytes_);
            } else {
                r_.row_writer->write(place.slot / slots_.slots_per_token(),
                                     static_cast<size_t>(slots_.expert_of(place.slot)),
                                     out);
            }
            return;
        }
        const auto expert = static_cast<size_t>(slots_.expert_of(place.slot));
        const float* smooth = smooth_ == nullptr ? nullptr : smooth_ + expert * hidden_;
        auto* q = static_cast<int8_t*>(receiver.recv_x.data) + place.row * hidden_;
        const float scale = quantise_row(r_.x.dtype, x, smooth, hidden_, q);
        if (receiver.recv_scale.num_elements() > 0) {
            static_cast<float*>(receiver.recv_scale.data)[place.row] = scale;
        }
    }

  private:
    const TwoPhasePayloadRequest& r_;
    const TwoPhaseSlots& slots_;
    size_t hidden_;
    size_t x_row_bytes_;
    const float* smooth_;
};

}  // namespace

const OperatorSpec kTwoPhasePayloadSpec = {
    "two_phase_payload",
    "phase 2 of the two-phase dispatch: rows, optionally quantised, straight to their places",
    "recv_x[base[rank, e] + i] = op(x[f div (K+S)]), f the i-th slot of (rank, e)",
    "two_phase_dispatch.md; operators.md 7",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<> check_two_phase_payload(const TwoPhasePayloadRequest& r, const TwoPhaseScratch& scratch) {
    OperatorCheck check(kTwoPhasePayloadSpec);
    check.attribute("quant_mode", r.quant_mode);
    check.tensor("x", r.x);
    check_two_phase_blocks(check, r);
    check.tensor("scales", r.scales);
    check.require(r.quant_mode == 1 || r.scales.num_elements() == 0,
                  "quant_mode is -1; scales are for quant_mode 1");
    if (r.receivers.empty()) {
        check_buffer(check, r);
    } else {
        check_receivers(check, r);
    }
    AFD_TRY(check.finish());
    const auto rows_of_rank = [&](size_t rank) { return receiver_of(r, rank).recv_x.shape[0]; };
    return check_two_phase_values(kTwoPhasePayloadSpec, r, rows_of_rank, scratch);
}

size_t two_phase_payload_workspace_bytes(const TwoPhasePayloadRequest& request) {
    return two_phase_scratch_bytes(request) +
           workspace_bytes_of<TwoPhasePlace>(two_phase_block_slots(request));
}

Result<> two_phase_payload(const TwoPhasePayloadRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel) {
    WorkspaceCursor cursor(workspace);
    const TwoPhaseScratch scratch = take_two_phase_scratch(request, cursor);
    AFD_TRY(check_two_phase_payload(request, scratch));
    TwoPhaseWalk walk(request, scratch);
    const Sender sender(request, walk.slots());
    auto* places = cursor.take<TwoPhasePlace>(walk.slots().block_slots());
    const size_t row_elements = sender.row_bytes() / kCopiedBytesPerElement;
    for (size_t block = walk.first_block(); block < walk.end_block(); ++block) {
        size_t num_rows = 0;
        walk.for_each(block, [&](const TwoPhasePlace& place) { places[num_rows++] = place; });
        for_rows(parallel, num_rows, row_elements, [&](size_t first, size_t last, unsigned) {
            for (size_t i = first; i < last; ++i) sender.send(places[i]);
        });
    }
    walk.finish();
    return {};
}

}  // namespace afd::ops
