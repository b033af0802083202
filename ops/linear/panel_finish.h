// SPDX-License-Identifier: Apache-2.0
#pragma once

// What becomes of the sums of a product: finishers for ops/linear/panel_loop.h. Internal to ops/.
//
// A finisher is called for every row of a panel, finish(row, panel, sums [kPanelColumns]). One that
// writes bf16 can be a TileFinisher and gets the rows of a tile at once; where they go to is
// fetched while the tile is multiplied, as it may be in the cache of another core. The two together
// are 1.03 (bf16) and 1.04 (int8) of the speed of 256 rows: the multiplier is at its peak there,
// and these steps are what is left.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/format/expert_activation.h"
#include "ops/linear/packed_linear.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

template <typename Finish>
concept TileFinisher =
    requires(const Finish& finish, size_t index, const float* sums, Bf16* const* targets) {
    // Columns of y that a panel becomes, and where those of one row begin.
    { finish.num_columns(index) } -> std::same_as<size_t>;
    { finish.target(index, index) } -> std::same_as<Bf16*>;
    // Whether finish_tile takes this panel.
    { finish.takes_tiles(index) } -> std::same_as<bool>;
    // `index` rows of kPanelColumns sums.
    finish.finish_tile(sums, index, targets);
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
    void finish_tile(const float* sums, size_t count, Bf16* const* y) const {
        kernels_.round_tile(sums, count, y);
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
    void finish_tile(const float* sums, size_t count, Bf16* const* h) const {
        kernels_.swiglu_tile(sums, count, h);
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

// What a tile covers: rows [first_row, first_row + num_rows) of the panels from `panel` on. Its
// sums are num_rows · num_panels rows of kPanelColumns: by row and then panel, or the other way.
struct TileCover {
    size_t first_row;
    size_t num_rows;
    size_t panel;
    size_t num_panels;
    bool is_by_panel;

    size_t count() const { return num_rows * num_panels; }

    // Calls body(i, row, panel) for every row of sums.
    template <typename Body>
    void for_each(const Body& body) const {
        const size_t outer = is_by_panel ? num_panels : num_rows;
        const size_t inner = is_by_panel ? num_rows : num_panels;
        size_t index = 0;
        for (size_t i = 0; i < outer; ++i) {
            for (size_t j = 0; j < inner; ++j, ++index) {
                body(index, first_row + (is_by_panel ? j : i), panel + (is_by_panel ? i : j));
            }
        }
    }
};

// A tile on its way to a finisher; made before it is multiplied.
template <typename Finish>
class TileTargets {
  public:
    // REQUIRES: cover.count() <= cpu::kTileRowsMax.
    TileTargets(const Finish& finish, const TileCover& cover) : finish_(&finish), cover_(cover) {
        if constexpr (TileFinisher<Finish>) {
            cover.for_each([&](size_t i, size_t row, size_t panel) {
                targets_[i] = finish.target(row, panel);
                fetch_to_write(targets_[i]);
                fetch_to_write(targets_[i] + finish.num_columns(panel) - 1);
            });
        }
    }

    void operator()(const float* sums) const {
        if constexpr (TileFinisher<Finish>) {
            // Only the last panel of a matrix may be another one.
            if (finish_->takes_tiles(cover_.panel + cover_.num_panels - 1)) {
                return finish_->finish_tile(sums, cover_.count(), targets_);
            }
        }
        cover_.for_each([&](size_t i, size_t row, size_t panel) {
            (*finish_)(row, panel, sums + i * kPanelColumns);
        });
    }

  private:
    const Finish* finish_;
    TileCover cover_;
    Bf16* targets_[cpu::kTileRowsMax];
};

}  // namespace afd::ops
