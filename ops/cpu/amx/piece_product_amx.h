// SPDX-License-Identifier: Apache-2.0
#pragma once

// Many rows and a piece of depth of some panels with tiles, of any element
// (cpu::PieceArguments). Compiled into ops/cpu/amx/kernels_amx.cc and tests only.

#include <algorithm>
#include <cstddef>

#include "ops/cpu/amx/piece_blocks_amx.h"
#include "ops/cpu/amx/product_tiles_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// What is left of the depth behind `done` bytes, less than a step.
template <typename Unit, auto kAdd>
void add_piece_rest(const PieceArguments& a, size_t done) {
    for (size_t panel = 0; panel < a.num_panels; ++panel) {
        const std::byte* weights =
            a.panels + panel * a.panel_stride + done / kTileRowBytes * kStepBytes;
        for (size_t row = 0; row < a.num_rows; row += kAmxRows) {
            const TileRowsOfX rows{
                a.x + row * a.x_stride + done, a.x_stride, std::min(kAmxRows, a.num_rows - row)};
            with_tiles<Unit>(rows.num_rows, [&]<typename Tiles>() {
                Tiles::template add_rest<kAdd>(rows,
                                               a.row_bytes - done,
                                               weights,
                                               a.goes_on || done > 0,
                                               a.sums + (panel * a.num_rows + row) * kSumRow,
                                               kSumRow);
            });
        }
    }
}

// kAdd.template operator()<Unit, C, A, B>() is the instruction.
template <typename Unit, auto kAdd>
void amx_pieces(const PieceArguments& a) {
    PieceBlocks<Unit> blocks(a);
    const size_t num_steps = blocks.num_steps();
    if (num_steps > 0) {
        blocks.run([&]<typename Tiles>(const PiecePass& pass) {
            std::byte* sums = blocks.sums(pass.panel, pass.row);
            Tiles::begin(a.goes_on, sums, kSumRow);
            for (size_t step = 0; step < num_steps; ++step) {
                blocks.step();
                Tiles::template add<kAdd>(pass.rows.from(step * kTileRowBytes),
                                          pass.weights + step * kStepBytes);
            }
            Tiles::store(sums, kSumRow);
        });
    }
    const size_t done = num_steps * kTileRowBytes;
    if (done < a.row_bytes) add_piece_rest<Unit, kAdd>(a, done);
    Unit::release();
}

}  // namespace
}  // namespace afd::ops::cpu
