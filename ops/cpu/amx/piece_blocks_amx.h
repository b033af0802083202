// SPDX-License-Identifier: Apache-2.0
#pragma once

// The way through many rows and a piece of depth of some panels (cpu::PieceArguments), of any
// element. Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// 32 rows of x stay in the first-level cache while the pieces of all panels pass them, line after
// line from the second-level one. Fetching these ahead, or the sums of the next panel, was no
// faster on an Emerald Rapids.

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ops/cpu/amx/even_steps.h"
#include "ops/cpu/amx/product_tiles_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/block_sizes.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Rows this far apart, or a multiple of it, share so few sets of a first-level cache of 64 sets
// that 32 of them do not stay there.
constexpr size_t kCrowdedStride = 1024;

// A block of rows and one panel.
struct PiecePass {
    TileRowsOfX rows;
    const std::byte* weights;
    size_t row;  // The first one's number.
    size_t panel;
};

template <typename Unit>
class PieceBlocks {
  public:
    explicit PieceBlocks(const PieceArguments& a)
        : a_(a),
          num_steps_(a.row_bytes / kTileRowBytes),
          num_blocks_((a.num_rows + kAmxRows - 1) / kAmxRows),
          meanwhile_(a.meanwhile.num_parts, num_blocks_ * a.num_panels * num_steps_) {}

    // Of a pass.
    size_t num_steps() const { return num_steps_; }

    // Calls pass.template operator()<Tiles>(PiecePass) for each block and panel, its tiles being
    // configured; it calls step() at every step.
    template <typename Pass>
    void run(const Pass& pass) {
        const size_t whole = a_.num_rows / kAmxRows * kAmxRows;
        if (whole > 0) run_rows<BlockTiles<Unit, true>>(0, whole, pass);
        if (whole == a_.num_rows) return;
        with_tiles<Unit>(a_.num_rows - whole,
                         [&]<typename Tiles>() { run_rows<Tiles>(whole, a_.num_rows, pass); });
    }

    // What goes on beside the products.
    [[gnu::always_inline]] void step() {
        memory_.step();
        meanwhile_.step([&] { a_.meanwhile.go_on(a_.meanwhile.work); });
    }

    std::byte* sums(size_t panel, size_t row) const {
        return a_.sums + (panel * a_.num_rows + row) * kSumRow;
    }

  private:
    // Rows [first, last), blocks of one size.
    template <typename Tiles, typename Pass>
    void run_rows(size_t first, size_t last, const Pass& pass) {
        const size_t num_rows = std::min(kAmxRows, last - first);
        Tiles::configure(num_rows);
        for (size_t row = first; row < last; row += kAmxRows) {
            alignas(64) std::byte apart[kAmxRows * BlockSizes::kPieceRowBytesMax];
            const TileRowsOfX rows =
                uncrowded({a_.x + row * a_.x_stride, a_.x_stride, num_rows}, apart);
            for (size_t panel = 0; panel < a_.num_panels; ++panel) {
                memory_ = next_weights(panel, row);
                pass.template operator()<Tiles>(
                    PiecePass{rows, a_.panels + panel * a_.panel_stride, row, panel});
            }
        }
    }

    // The rows where they are, or copied to `apart`.
    TileRowsOfX uncrowded(const TileRowsOfX& rows, std::byte* apart) const {
        if (rows.stride % kCrowdedStride != 0 || a_.num_panels == 1) return rows;
        const size_t stride = num_steps_ * kTileRowBytes;
        for (size_t r = 0; r < rows.num_rows; ++r) {
            std::memcpy(apart + r * stride, rows.x + r * rows.stride, stride);
        }
        return {apart, stride, rows.num_rows};
    }

    // The part of what is fetched from memory that falls to these rows and this panel.
    LineFetch next_weights(size_t panel, size_t row) const {
        if (a_.fetch == nullptr) return {};
        const std::byte* from = a_.fetch + panel * a_.fetch_stride;
        return {from, a_.fetch_bytes, row / kAmxRows, num_blocks_, num_steps_};
    }

    const PieceArguments& a_;
    const size_t num_steps_;
    const size_t num_blocks_;
    LineFetch memory_;
    EvenSteps meanwhile_;
};

}  // namespace
}  // namespace afd::ops::cpu
