// SPDX-License-Identifier: Apache-2.0
#pragma once

// Many rows and a piece of depth of some panels with tiles, of any element
// (cpu::PieceArguments). Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// 32 rows of x stay in the first-level cache while the pieces of all panels pass them, line after
// line from the second-level one. Fetching these ahead, or the sums of the next panel, was no
// faster on an Emerald Rapids. 32 rows meet the two tiles of columns of a panel, at most 16 rows
// the four of two panels: four sums are under way either way.

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ops/cpu/amx/even_steps.h"
#include "ops/cpu/amx/tile_product_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/block_sizes.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Rows this far apart, or a multiple of it, share so few sets of a first-level cache of 64 sets
// that 32 of them do not stay there.
constexpr size_t kCrowdedStride = 1024;

template <typename Unit, auto kAdd>
class PieceProduct {
  public:
    explicit PieceProduct(const PieceArguments& a)
        : a_(a),
          num_steps_(a.row_bytes / kTileRowBytes),
          num_blocks_((a.num_rows + kAmxRows - 1) / kAmxRows) {}

    void run() {
        const size_t whole = a_.num_rows / kAmxRows * kAmxRows;
        const size_t rest = a_.num_rows - whole;
        if (num_steps_ > 0) {
            if (whole > 0) configure(kTileRows, kTileRows, 0);
            for (size_t row = 0; row < whole; row += kAmxRows) pass_rows(row, kAmxRows);
            if (rest > kTileRows) {
                configure(kTileRows, rest - kTileRows, 0);
                pass_rows(whole, rest);
            } else if (rest > 0) {
                configure(rest, 0, rest);
                pass_few_rows(whole);
            }
        }
        if (a_.row_bytes % kTileRowBytes != 0) add_tail();
        Unit::release();
    }

  private:
    static constexpr size_t kSumRow = kPanelColumns * 4;

    // `top` and `bottom` rows of x; `second` rows of the sums of a second panel.
    static void configure(size_t top, size_t bottom, size_t second) {
        TileConfiguration configuration;
        for (const size_t c : {0, 1}) configuration.set(c, top, kTileRowBytes);
        for (const size_t c : {2, 3}) configuration.set(c, bottom + second, kTileRowBytes);
        configuration.set(4, top, kTileRowBytes);
        configuration.set(5, bottom, kTileRowBytes);
        for (const size_t b : {6, 7}) configuration.set(b, kTileGroups, kTileRowBytes);
        Unit::configure(configuration);
    }

    std::byte* sums(size_t panel, size_t row) const {
        return a_.sums + (panel * a_.num_rows + row) * kSumRow;
    }

    // The part of what is fetched from memory that falls to these rows and this panel.
    LineFetch next_weights(size_t panel, size_t row) const {
        if (a_.fetch == nullptr) return {};
        const std::byte* from = a_.fetch + panel * a_.fetch_stride;
        return {from, a_.fetch_bytes, row / kAmxRows, num_blocks_, num_steps_};
    }

    // 17 to 32 rows.
    void pass_rows(size_t row, size_t num_rows) {
        const std::byte* x = a_.x + row * a_.x_stride;
        size_t stride = a_.x_stride;
        alignas(64) std::byte apart[kAmxRows * BlockSizes::kPieceRowBytesMax];
        if (stride % kCrowdedStride == 0 && a_.num_panels > 1) {
            stride = num_steps_ * kTileRowBytes;
            for (size_t r = 0; r < num_rows; ++r) {
                std::memcpy(apart + r * stride, x + r * a_.x_stride, stride);
            }
            x = apart;
        }
        for (size_t panel = 0; panel < a_.num_panels; ++panel) {
            LineFetch memory = next_weights(panel, row);
            std::byte* to = sums(panel, row);
            begin<true>(to, kTileRows * kSumRow);
            const std::byte* weights = a_.panels + panel * a_.panel_stride;
            for (size_t step = 0; step < num_steps_; ++step) {
                memory.step();
                const std::byte* at = x + step * kTileRowBytes;
                Unit::template load<4>(at, stride);
                load_weights(weights + step * kStepBytes);
                kAdd.template operator()<Unit, 0, 4, 6>();
                kAdd.template operator()<Unit, 1, 4, 7>();
                Unit::template load<5>(at + kTileRows * stride, stride);
                kAdd.template operator()<Unit, 2, 5, 6>();
                kAdd.template operator()<Unit, 3, 5, 7>();
            }
            end<true>(to, kTileRows * kSumRow);
        }
    }

    // Up to 16 rows.
    void pass_few_rows(size_t row) {
        size_t panel = 0;
        for (; panel + 2 <= a_.num_panels; panel += 2) pass_panels<true>(panel, row);
        if (panel < a_.num_panels) pass_panels<false>(panel, row);
    }

    template <bool kTwo>
    void pass_panels(size_t panel, size_t row) {
        const std::byte* x = a_.x + row * a_.x_stride;
        LineFetch memory = next_weights(panel, row);
        LineFetch memory_too = kTwo ? next_weights(panel + 1, row) : LineFetch();
        const size_t second = sums(panel + 1, row) - sums(panel, row);
        std::byte* to = sums(panel, row);
        begin<kTwo>(to, second);
        const std::byte* weights = a_.panels + panel * a_.panel_stride;
        for (size_t step = 0; step < num_steps_; ++step) {
            memory.step();
            Unit::template load<4>(x + step * kTileRowBytes, a_.x_stride);
            load_weights(weights + step * kStepBytes);
            kAdd.template operator()<Unit, 0, 4, 6>();
            kAdd.template operator()<Unit, 1, 4, 7>();
            if constexpr (kTwo) {
                memory_too.step();
                load_weights(weights + a_.panel_stride + step * kStepBytes);
                kAdd.template operator()<Unit, 2, 4, 6>();
                kAdd.template operator()<Unit, 3, 4, 7>();
            }
        }
        end<kTwo>(to, second);
    }

    // What is left of the depth, less than a step.
    void add_tail() {
        const size_t done = num_steps_ * kTileRowBytes;
        for (size_t panel = 0; panel < a_.num_panels; ++panel) {
            for (size_t row = 0; row < a_.num_rows; row += kAmxRows) {
                multiply_tiles<Unit, kAdd>(
                    {.x = a_.x + row * a_.x_stride + done,
                     .stride = a_.x_stride,
                     .num_rows = std::min(kAmxRows, a_.num_rows - row),
                     .row_bytes = a_.row_bytes - done,
                     .panel = a_.panels + panel * a_.panel_stride + num_steps_ * kStepBytes,
                     .panel_bytes = 0,
                     .num_panels = 1,
                     .out = sums(panel, row),
                     .goes_on = a_.goes_on || num_steps_ > 0,
                     .is_cold = false,
                     .fetch_next = {},
                     .next_x = nullptr});
            }
        }
    }

    static void load_weights(const std::byte* at) {
        Unit::template load<6>(at, kGroupBytes);
        Unit::template load<7>(at + kTileRowBytes, kGroupBytes);
    }

    // kFour: tiles 2 and 3 stand for the sums `second` bytes further.
    template <bool kFour>
    void begin(const std::byte* at, size_t second) const {
        begin_sum<0>(at);
        begin_sum<1>(at + kTileRowBytes);
        if constexpr (kFour) {
            begin_sum<2>(at + second);
            begin_sum<3>(at + second + kTileRowBytes);
        }
    }
    template <int kTile>
    void begin_sum(const std::byte* at) const {
        if (a_.goes_on) {
            Unit::template load<kTile>(at, kSumRow);
        } else {
            Unit::template zero<kTile>();
        }
    }
    template <bool kFour>
    static void end(std::byte* at, size_t second) {
        Unit::template store<0>(at, kSumRow);
        Unit::template store<1>(at + kTileRowBytes, kSumRow);
        if constexpr (kFour) {
            Unit::template store<2>(at + second, kSumRow);
            Unit::template store<3>(at + second + kTileRowBytes, kSumRow);
        }
    }

    const PieceArguments& a_;
    const size_t num_steps_;
    const size_t num_blocks_;
};

// kAdd.template operator()<Unit, C, A, B>() is the instruction.
template <typename Unit, auto kAdd>
void amx_pieces(const PieceArguments& a) {
    PieceProduct<Unit, kAdd>(a).run();
}

}  // namespace
}  // namespace afd::ops::cpu
