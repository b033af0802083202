// SPDX-License-Identifier: Apache-2.0
#pragma once

// Many rows and a piece of depth of some panels of fp8 weights, unpacked to bf16, with tiles
// (cpu::Fp8PieceArguments). Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// 32 rows meet the blocks of one panel after another. The products of a block, 4 KiB, stay in the
// first-level cache and are added to the sums while the tiles are at the next one: what was stored
// just now is slow to load.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ops/cpu/amx/piece_blocks_amx.h"
#include "ops/cpu/amx/product_tiles_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "ops/cpu/kernels.h"
#include "ops/format/weight_format.h"

namespace afd::ops::cpu {
namespace {

// Products of one block, some rows of one panel.
struct alignas(64) BlockProducts {
    float sums[kAmxRows * kPanelColumns];

    std::byte* bytes() { return reinterpret_cast<std::byte*>(sums); }
};

// The addition of one block's products to the sums, some rows at a time.
class BlockAddition {
  public:
    using AddBlock = void (*)(const BlockSumArguments& arguments);

    explicit BlockAddition(AddBlock add) : add_block_(add) {}

    // What was begun before is done first.
    void begin(const BlockSumArguments& block) {
        finish();
        left_ = block;
    }

    [[gnu::always_inline]] void go_on() {
        if (left_.num_rows > 0) add_rows();
    }

    void finish() {
        while (left_.num_rows > 0) add_rows();
    }

  private:
    static constexpr size_t kRows = 8;  // A block has four steps, and 32 rows at most.

    void add_rows() {
        BlockSumArguments some = left_;
        some.num_rows = std::min(kRows, left_.num_rows);
        add_block_(some);
        left_.num_rows -= some.num_rows;
        left_.products += kRows * kPanelColumns;
        left_.sums += kRows * kPanelColumns;
    }

    AddBlock add_block_;
    BlockSumArguments left_{};
};

template <typename Unit>
class Fp8PieceProduct {
  public:
    Fp8PieceProduct(const Fp8PieceArguments& a, BlockAddition::AddBlock add)
        : a_(a), blocks_(a), addition_(add) {}

    void run() {
        const size_t depth = a_.row_bytes / sizeof(Bf16);
        // A last block that is not of whole steps is apart.
        const size_t rest = depth % kStepDepth == 0 ? 0 : depth % kFp8BlockEdge;
        const size_t num_steps = (depth - rest) / kStepDepth;
        if (num_steps > 0) {
            blocks_.run([&]<typename Tiles>(const PiecePass& pass) {
                for (size_t step = 0; step < num_steps; step += kBlockSteps) {
                    add_block<Tiles>(pass, step, std::min(step + kBlockSteps, num_steps));
                }
            });
        }
        addition_.finish();
        if (rest > 0) add_rest(depth - rest, rest);
        Unit::release();
    }

  private:
    static constexpr size_t kBlockSteps = kFp8BlockEdge / kStepDepth;

    template <typename Tiles>
    void add_block(const PiecePass& pass, size_t first_step, size_t last_step) {
        Tiles::zero();
        for (size_t step = first_step; step < last_step; ++step) {
            blocks_.step();
            Tiles::template add<AddBf16{}>(pass.rows.from(step * kTileRowBytes),
                                           pass.weights + step * kStepBytes);
            addition_.go_on();
        }
        std::swap(products_, products_before_);
        Tiles::store(products_->bytes(), kSumRow);
        begin_addition(pass.panel, pass.row, pass.rows.num_rows, first_step * kStepDepth);
    }

    // products_ are of the block from element k of the piece on.
    void begin_addition(size_t panel, size_t row, size_t num_rows, size_t k) {
        addition_.begin({.products = products_->sums,
                         .scales = a_.scales + panel * a_.scale_stride + k / kFp8BlockEdge * 2,
                         .num_rows = num_rows,
                         .goes_on = a_.goes_on || k > 0,
                         .sums = reinterpret_cast<float*>(blocks_.sums(panel, row))});
    }

    // The last `count` elements of depth, from k on.
    void add_rest(size_t k, size_t count) {
        for (size_t panel = 0; panel < a_.num_panels; ++panel) {
            for (size_t row = 0; row < a_.num_rows; row += kAmxRows) {
                const TileRowsOfX rows{a_.x + row * a_.x_stride + k * sizeof(Bf16),
                                       a_.x_stride,
                                       std::min(kAmxRows, a_.num_rows - row)};
                multiply_tiles<Unit, AddBf16{}>(
                    {.rows = rows,
                     .row_bytes = count * sizeof(Bf16),
                     .panel = a_.panels + panel * a_.panel_stride + k / kStepDepth * kStepBytes,
                     .panel_bytes = 0,
                     .num_panels = 1,
                     .out = products_->bytes(),
                     .goes_on = false,
                     .is_from_memory = false});
                begin_addition(panel, row, rows.num_rows, k);
                addition_.finish();
            }
        }
    }

    const Fp8PieceArguments& a_;
    PieceBlocks<Unit> blocks_;
    BlockAddition addition_;
    BlockProducts room_[2];
    BlockProducts* products_ = &room_[0];
    BlockProducts* products_before_ = &room_[1];
};

// kPlain() gives the table whose add_block is the class's.
template <typename Unit, auto kPlain>
void amx_fp8_pieces(const Fp8PieceArguments& a) {
    Fp8PieceProduct<Unit>(a, kPlain().add_block).run();
}

}  // namespace
}  // namespace afd::ops::cpu
