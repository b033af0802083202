// SPDX-License-Identifier: Apache-2.0

#include "ops/cpu/block_sizes.h"

#include <limits>

#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Of one element of depth of a bf16 panel.
constexpr size_t kDepthBytes = kPanelColumns * sizeof(Bf16);

size_t round_down(size_t value, size_t to) {
    return value / to * to;
}

// Rows of x that stay in the first-level cache while panels pass them.
constexpr size_t kPieceBlockRows = 32;

// What a core has under way: 40 GB/s after 100 ns. Further ahead, lines only take room. Measured on
// Zen 4 (first level 32 KiB) with one to four rows, as parts of what a plain read reaches: 2, 3, 6
// and 8 KiB ahead are slower than 4. On Zen 5 (48 KiB) 4 to 24 KiB are within 4 % of each other.
constexpr size_t kNearMost = 4096;
// To the second-level cache. On Zen 4 (1 MiB) eight rows reach 0.89 to 0.98 so, and 16 to 128 KiB
// ahead less; an Intel core with 2 MiB streams through tiles at 0.93 of a plain read.
constexpr size_t kFarMost = 8192;

// Eight and twelve rows with AVX-512 BF16, from memory, to the first-level cache instead of to the
// second-level one: Zen 4 (32 KiB) 0.79 instead of 0.89 to 0.98 of a plain read; Zen 5 (48 KiB)
// 1.24 and 1.16 times the speed with bf16 weights, 1.11 and 1.05 with int8. Up to six rows are
// slower through the second level on both.
constexpr size_t kNearRowsOfSmall = 6;
constexpr size_t kLargeFirstLevel = size_t{48} << 10;
// By way of the second level, 8 KiB ahead, an Emerald Rapids (48 KiB, 2 MiB) reads bf16 weights at
// 0.98 instead of 0.84 of a plain read with one row, 0.95 instead of 0.83 with two, 0.86 instead of
// 0.73 with four, and as fast as before with eight; to the first level alone at half of that.
size_t near_rows_of(const Caches& caches) {
    if (caches.is_filled_by_second_level) return 0;
    return caches.first_level >= kLargeFirstLevel ? std::numeric_limits<size_t>::max()
                                                  : kNearRowsOfSmall;
}

BlockSizes& current() {
    static BlockSizes sizes = BlockSizes::of(processor_caches());
    return sizes;
}

}  // namespace

BlockSizes BlockSizes::of(const Caches& caches) {
    BlockSizes sizes;
    const size_t piece_bytes = caches.first_level / 3 * 2;
    sizes.piece_depth =
        std::clamp(round_down(piece_bytes / kDepthBytes, kDepths), kDepths, kPieceDepthMax);
    sizes.piece_row_bytes =
        std::clamp(round_down(caches.first_level / 3 / kPieceBlockRows, kPieceRowBytesLeast),
                   kPieceRowBytesLeast,
                   kPieceRowBytesMax);
    const size_t row_bytes = sizes.piece_depth * sizeof(Bf16) + kPanelColumns * sizeof(float);
    sizes.piece_rows =
        std::clamp(round_down(caches.second_level / 4 / row_bytes, kRows), kRows, kPieceRowsMax);
    sizes.panel_depth =
        std::max(round_down(caches.second_level / 2 / kDepthBytes, kDepths), kDepths);
    sizes.widened = std::min(caches.first_level / 4 / sizeof(float), kWidenedMax);
    sizes.fetch_near = std::min(round_down(caches.first_level / 8, 64), kNearMost);
    sizes.fetch_far = std::min(round_down(caches.second_level / 64, 64), kFarMost);
    sizes.near_rows = near_rows_of(caches);
    sizes.panels = std::clamp<size_t>(
        caches.first_level / 2 / std::max<size_t>(sizes.fetch_near, 1), 1, kPanelsMax);
    sizes.second_level = caches.second_level / 8 * 5;
    return sizes;
}

const BlockSizes& block_sizes() {
    return current();
}

BlockSizes exchange_block_sizes(const BlockSizes& sizes) {
    const BlockSizes before = current();
    current() = sizes;
    return before;
}

}  // namespace afd::ops::cpu
