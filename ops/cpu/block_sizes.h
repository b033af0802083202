// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockSizes: into which parts products are cut so that they stay in a core's caches, and how far
// ahead of its use memory is asked for. They follow from the caches of the processor, and no bit
// of a result follows from them: a sum goes on where the part before it ended
// (tests/ops/cpu/block_sizes_test.cc).

#include <algorithm>
#include <cstddef>

#include "ops/cpu/caches.h"

namespace afd::ops::cpu {

struct BlockSizes {
    // Elements of depth of an unpacked panel that stay in the first-level cache while rows pass,
    // two thirds of it. A multiple of kDepths, kPieceDepthMax at most.
    size_t piece_depth = 0;
    // Rows that pass such a piece before the next one. With their sums and their part of x they
    // take a quarter of the second-level cache. A multiple of kRows, kPieceRowsMax at most.
    size_t piece_rows = 0;
    // Bytes of a row of x in a piece of depth, for classes with kernels of pieces: 32 rows of it,
    // and as much of a panel, take a third of the first-level cache each. A multiple of
    // kPieceRowBytesLeast, kPieceRowBytesMax at most.
    size_t piece_row_bytes = 0;
    // Elements of depth of a bf16 panel that stay in the second-level cache, half of it, while more
    // rows than one tile has pass. A multiple of kDepths.
    size_t panel_depth = 0;
    // Values of x that a class widens to floats at a time, kWidenedMax at most: a quarter of the
    // first-level cache; the weights that they meet take another one.
    size_t widened = 0;
    // How far ahead of its loads a panel is fetched from memory, in bytes (FetchAhead).
    size_t fetch_near = 0;
    size_t fetch_far = 0;
    // Rows of a tile that fetch to the first-level cache: few where it has 32 KiB, all where it has
    // half as much again, none where lines come faster by way of the second-level one.
    size_t near_rows = 0;
    // Panels that are passed at once at most, kPanelsMax of them: what is fetched ahead for all of
    // them takes half of the first-level cache.
    size_t panels = 0;

    static constexpr size_t kDepths = 128;
    static constexpr size_t kPieceDepthMax = 1024;
    static constexpr size_t kPieceRowBytesLeast = 256;
    static constexpr size_t kPieceRowBytesMax = 1024;
    static constexpr size_t kRows = 96;
    static constexpr size_t kPieceRowsMax = 384;
    static constexpr size_t kWidenedMax = size_t{12} * 256;
    static constexpr size_t kPanelsMax = 4;

    static BlockSizes of(const Caches& caches);

    // How many things of `bytes` each, `most` at most, stay in the second-level cache together.
    size_t in_second_level(size_t bytes, size_t most) const {
        return std::clamp<size_t>(second_level / bytes, 1, most);
    }
    size_t second_level = 0;  // Bytes of it that may be filled: five eighths.

    friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

// Those of this processor.
const BlockSizes& block_sizes();

// For tests: takes others from now on and gives back what was there. REQUIRES: no product runs.
BlockSizes exchange_block_sizes(const BlockSizes& sizes);

}  // namespace afd::ops::cpu
