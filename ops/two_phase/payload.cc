// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/payload.h"

#include <cstring>

#include "ops/linear/quantise.h"
#include "ops/tensor/row_tasks.h"

namespace afd::ops {
namespace {

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
        const TwoPhaseReceiveBuffer receiver = r_.receiver_of(rank);
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
        // Places first, on one thread: they count on from key to key. The copies then need no
        // order.
        walk.for_each(block, [&](const TwoPhasePlace& place) { places[num_rows++] = place; });
        for_rows(parallel, num_rows, row_elements, [&](size_t first, size_t last, unsigned) {
            for (size_t i = first; i < last; ++i) sender.send(places[i]);
        });
    }
    walk.finish();
    return {};
}

}  // namespace afd::ops
