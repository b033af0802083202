// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pieces of depth of some panels of one packed matrix, as kernels of pieces take them
// (cpu::PieceArguments): from where they lie, or unpacked to bf16. Internal to ops/; the order in
// which they come is in piece_walk.h.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "ops/cpu/kernels.h"
#include "ops/linear/packed_linear.h"
#include "ops/linear/panel_tasks.h"
#include "ops/tensor/round_up.h"

namespace afd::ops {

// Panels of a group, whose pieces go together.
constexpr size_t kGroupPanels = 4;
// Of the pieces of a group, unpacked. A panel may be written a pair of elements beyond its end.
constexpr size_t kUnpackedBytes =
    kGroupPanels * cpu::BlockSizes::kPieceRowBytesMax * kPanelColumns + 4 * kPanelColumns;

// One piece: elements [k, k + depth) of a group of panels, and the chunk that meets it.
struct PiecePlace {
    size_t panel;
    size_t num_panels;
    size_t chunk;
    size_t k;
    size_t depth;
};

// Where a piece of one panel lies in memory.
struct PieceSource {
    const std::byte* from;
    size_t bytes;
};

// Pieces that are multiplied from where they lie, `step_bytes` for each element of depth: bf16 and
// int8.
class PlainPieces {
  public:
    static constexpr bool kAreUnpacked = false;

    PlainPieces(const PackedLinear& weight, size_t step_bytes)
        : weight_(weight), step_bytes_(step_bytes) {}

    PieceSource source(size_t panel, size_t k, size_t depth) const {
        return {weight_.panel_data(panel) + k * step_bytes_, depth * step_bytes_};
    }
    void take(const PiecePlace& place,
              const std::optional<PiecePlace>& /*next*/,
              cpu::PieceArguments& a) const {
        a.panels = weight_.panel_data(place.panel) + place.k * step_bytes_;
        a.panel_stride = weight_.panel_bytes();
    }

  private:
    const PackedLinear& weight_;
    size_t step_bytes_;
};

// Pieces that are unpacked to bf16 first, once for all rows of a chunk, and each while the one
// before it is multiplied. source(panel, k, depth) tells where one lies, unpack(from, depth, to)
// unpacks at most `unit` elements of depth that begin at a multiple of it.
template <typename Source, typename Unpack>
class UnpackedPieces {
  public:
    static constexpr bool kAreUnpacked = true;

    // rooms: 2 · kUnpackedBytes.
    UnpackedPieces(std::byte* rooms, size_t unit, const Source& source, const Unpack& unpack)
        : room_(rooms),
          other_(rooms + kUnpackedBytes),
          unit_(unit),
          source_(source),
          unpack_(unpack) {}

    PieceSource source(size_t panel, size_t k, size_t depth) const {
        return source_(panel, k, depth);
    }
    // REQUIRES: `place` was the last call's `next`, or this is the first call.
    void take(const PiecePlace& place,
              const std::optional<PiecePlace>& next,
              cpu::PieceArguments& a) {
        if (!begun_) begin(place);
        while (panel_ < begun_->num_panels) go_on();
        a.panels = room_;
        a.panel_stride = stride_of(place);
        if (!next) return;
        begin(*next);
        a.meanwhile = {[](void* pieces) { static_cast<UnpackedPieces*>(pieces)->go_on(); },
                       this,
                       next->num_panels * div_up(next->depth, unit_)};
    }

  private:
    static size_t stride_of(const PiecePlace& place) {
        return round_up(place.depth, 2) * kPanelColumns * sizeof(Bf16);
    }

    void begin(const PiecePlace& place) {
        std::swap(room_, other_);
        begun_ = place;
        panel_ = 0;
        at_ = 0;
    }

    // One unit, if any is left.
    void go_on() {
        if (panel_ == begun_->num_panels) return;
        const size_t count = std::min(unit_, begun_->depth - at_);
        unpack_(source_(begun_->panel + panel_, begun_->k + at_, count).from,
                count,
                reinterpret_cast<uint16_t*>(room_ + panel_ * stride_of(*begun_) +
                                            at_ * kPanelColumns * sizeof(Bf16)));
        at_ += count;
        if (at_ < begun_->depth) return;
        at_ = 0;
        ++panel_;
    }

    std::byte* room_;   // Of what was begun last;
    std::byte* other_;  // of the piece before it.
    size_t unit_;
    const Source& source_;
    const Unpack& unpack_;
    std::optional<PiecePlace> begun_;
    size_t panel_ = 0;  // Of begun_, and elements of its depth, that come next.
    size_t at_ = 0;
};

}  // namespace afd::ops
