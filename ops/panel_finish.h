// SPDX-License-Identifier: Apache-2.0
#pragma once

// What becomes of the sums of a product: finishers for ops/panel_loop.h. Internal to ops/.
//
// A finisher is called for every row of a panel, finish(row, panel, sums [kPanelColumns]). One that
// writes bf16 can be a TileFinisher and gets the rows of a tile at once; where they go to is
// fetched while the tile is multiplied, as it may be in the cache of another core.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/expert_activation.h"
#include "ops/linear.h"
#include "ops/tensor_view.h"

namespace afd::ops {

template <typename Finish>
concept TileFinisher =
    requires(const Finish& finish, size_t index, const float* sums, Bf16* const* targets) {
    // Columns of y that a panel becomes, and where those of one row begin.
    { finish.num_columns(index) } -> std::same_as<size_t>;
    { finish.target(index, index) } -> std::same_as<Bf16*>;
    // Whether finish_tile takes this panel.
    { finish.takes_tiles(index) } -> std::same_as<bool>;
    // The sums of `num_rows` rows, `stride` apart.
    finish.finish_tile(sums, index, index, targets);
};

// y →bf16.
class RoundPanels {
  public:
    // Row i goes to row first_row + i of y, or to row row_index[first_row + i].
    RoundPanels(const PackedLinear& weight,
                Rows<Bf16> y,
                size_t first_row = 0,
                const int32_t* row_index = nullptr)
        : kernels_(cpu::kernels(weight.numeric_class())),
          y_(y),
          first_row_(first_row),
          row_index_(row_index) {}

    void operator()(size_t row, size_t panel, const float* sums) const {
        kernels_.round_row(sums, num_columns(panel), target(row, panel));
    }
    size_t num_columns(size_t panel) const {
        return std::min(kPanelColumns, y_.num_cols - panel * kPanelColumns);
    }
    Bf16* target(size_t row, size_t panel) const {
        const size_t from = first_row_ + row;
        const size_t to = row_index_ == nullptr ? from : static_cast<size_t>(row_index_[from]);
        return y_.row(to) + panel * kPanelColumns;
    }
    bool takes_tiles(size_t panel) const { return num_columns(panel) == kPanelColumns; }
    void finish_tile(const float* sums, size_t stride, size_t num_rows, Bf16* const* y) const {
        kernels_.round_tile(sums, stride, num_rows, y);
    }

  private:
    const cpu::Kernels& kernels_;
    Rows<Bf16> y_;
    size_t first_row_;
    const int32_t* row_index_;
};

// h = the activation of gate and up, or of gate alone where the weight has nothing else.
class ActivatePanels {
  public:
    // h [num_rows, intermediate].
    ActivatePanels(const PackedLinear& weight, ExpertActivation activation, Rows<Bf16> h)
        : kernels_(cpu::kernels(weight.numeric_class())),
          activate_row_(kernels_.activate_rows[static_cast<size_t>(activation)]),
          width_(weight.is_gate_up() ? kPanelColumns / 2 : kPanelColumns),
          is_silu_(activation == ExpertActivation::kSilu),
          h_(h) {}

    void operator()(size_t row, size_t panel, const float* sums) const {
        activate_row_(sums, sums + width_, num_columns(panel), target(row, panel));
    }
    size_t num_columns(size_t panel) const {
        return std::min(width_, h_.num_cols - panel * width_);
    }
    Bf16* target(size_t row, size_t panel) const { return h_.row(row) + panel * width_; }
    bool takes_tiles(size_t panel) const { return is_silu_ && num_columns(panel) == width_; }
    void finish_tile(const float* sums, size_t stride, size_t num_rows, Bf16* const* h) const {
        kernels_.swiglu_tile(sums, stride, num_rows, h);
    }

  private:
    const cpu::Kernels& kernels_;
    cpu::ActivateRow activate_row_;
    size_t width_;
    bool is_silu_;
    Rows<Bf16> h_;
};

inline void fetch_to_write(const void* at) {
#ifdef __x86_64__
    // A compiler that does not know the processor would fetch it to read.
    asm("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
    __builtin_prefetch(at, 1);
#endif
}

// Rows [first_row, first_row + num_rows) of the panels of a tile on their way to a finisher; made
// before the tile is multiplied.
template <typename Finish>
class TileTargets {
  public:
    // REQUIRES: num_rows · num_panels <= cpu::kTileRows.
    TileTargets(
        const Finish& finish, size_t first_row, size_t num_rows, size_t panel, size_t num_panels)
        : finish_(finish),
          first_row_(first_row),
          num_rows_(num_rows),
          panel_(panel),
          num_panels_(num_panels) {
        if constexpr (TileFinisher<Finish>) {
            Bf16** next = targets_;
            for (size_t p = panel; p < panel + num_panels; ++p) {
                const size_t last = finish.num_columns(p) - 1;
                for (size_t r = 0; r < num_rows; ++r, ++next) {
                    *next = finish.target(first_row + r, p);
                    fetch_to_write(*next);
                    fetch_to_write(*next + last);
                }
            }
        }
    }

    // The sums of the tile, [num_rows][num_panels][kPanelColumns].
    void finish(const float* sums) const {
        const size_t stride = num_panels_ * kPanelColumns;
        for (size_t p = 0; p < num_panels_; ++p, sums += kPanelColumns) {
            if constexpr (TileFinisher<Finish>) {
                if (finish_.takes_tiles(panel_ + p)) {
                    finish_.finish_tile(sums, stride, num_rows_, targets_ + p * num_rows_);
                    continue;
                }
            }
            for (size_t r = 0; r < num_rows_; ++r) {
                finish_(first_row_ + r, panel_ + p, sums + r * stride);
            }
        }
    }

  private:
    const Finish& finish_;
    size_t first_row_;
    size_t num_rows_;
    size_t panel_;
    size_t num_panels_;
    Bf16* targets_[cpu::kTileRows];  // [num_panels][num_rows]
};

}  // namespace afd::ops
