// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of products are called with (ops/cpu/kernels.h): some rows and some weights of
// one format, what they fetch meanwhile, and where the sums go.

#include <cstddef>
#include <cstdint>

#include "ops/cpu/block_sizes.h"
#include "ops/format/packed_shape.h"
#include "ops/format/w4a8_rows.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {

// How far ahead of the loads weights are prefetched where they come from memory once (BlockSizes).
// Few rows are as fast as memory and fetch to the first-level cache. More of them multiply for
// about as long as memory takes; where the first-level cache has too few misses in flight for both
// to go on at once, the second-level one takes them, and they are fetched once more 1 KiB ahead of
// use. Whatever the distance, lines must be asked for in the order in which they lie: the two lines
// of a step at two distances halve the bandwidth (Zen 4).
struct FetchAhead {
    size_t bytes = 0;  // 0: what is used is in cache.
    bool is_far = false;

    static FetchAhead near() { return {block_sizes().fetch_near, false}; }
    static FetchAhead far() { return {block_sizes().fetch_far, true}; }
    static FetchAhead of_rows(size_t num_rows, size_t near_rows) {
        return num_rows <= near_rows ? near() : far();
    }
};

// Where several blocks of rows pass a panel, each of them fetches a part of the next panel to the
// second-level cache: at every step of depth (a pair, for int8 a quad, for int4 a line of the
// panel) the line that is `step_bytes` further, so at most a line. Null: the tile's own panel comes
// from memory.
struct FetchNext {
    const std::byte* from = nullptr;
    size_t step_bytes = 0;
};

// What the tiles of all weight formats take: some rows of x and a panel.
template <typename X, typename Weights, typename Sum>
struct TileOf {
    const X* x = nullptr;  // num_rows rows of depth elements, x_stride apart
    size_t x_stride = 0;
    size_t num_rows = 0;  // 1 ... rows of the TileShape
    const Weights* panel = nullptr;
    size_t depth = 0;
    Sum* out = nullptr;        // [num_rows][32]
    FetchAhead fetch_ahead{};  // Of its own panel.
    FetchNext fetch_next{};    // Instead of it.
    // With fetch_next: the rows that pass next, fetched to the second-level cache.
    const X* next_x = nullptr;
};

// Several bf16 panels (PackedLinear::panel), one behind the other; out [num_rows][num_panels · 32].
struct TileArguments : TileOf<Bf16, uint16_t, float> {
    size_t panel_elements = 0;
    size_t num_panels = 1;  // 1 ... TileShape::panels(num_rows)
    bool goes_on = false;   // The chains begin with what `out` holds, otherwise with 0.
};

// Work that goes on between the steps of a product of tiles, which leave the vector unit free:
// go_on(work) does one part of it, and may be called more often than there are parts.
struct Meanwhile {
    void (*go_on)(void* work) = nullptr;
    void* work = nullptr;
    size_t num_parts = 0;
};

// A piece of depth of some panels, and the rows that meet it. Bytes, since the kernels for bf16 and
// for int8 weights take the same.
struct PieceArguments {
    const std::byte* x = nullptr;  // num_rows rows of row_bytes, x_stride bytes apart
    size_t x_stride = 0;
    size_t num_rows = 0;                // 1 or more
    size_t row_bytes = 0;               // BlockSizes::kPieceRowBytesMax at most
    const std::byte* panels = nullptr;  // num_panels pieces, panel_stride bytes apart
    size_t panel_stride = 0;
    size_t num_panels = 0;      // 1 or more
    std::byte* sums = nullptr;  // [num_panels][num_rows][32], 4 bytes each
    bool goes_on = false;       // The chains begin with what `sums` holds, otherwise with 0.
    // Fetched to the second-level cache meanwhile, as evenly as the multiplier runs: for each panel
    // fetch_bytes, fetch_stride apart. Null: nothing.
    const std::byte* fetch = nullptr;
    size_t fetch_bytes = 0;
    size_t fetch_stride = 0;
    // As evenly, num_parts of it at most: what is left of it is the caller's.
    Meanwhile meanwhile{};
};

// The same of fp8 panels that were unpacked to bf16. A piece begins with a block of 128 elements of
// depth, and the products of each block are added to the sums as add_block does, one block after
// another (ops/format/numeric_class.h).
struct Fp8PieceArguments : PieceArguments {
    const float* scales = nullptr;  // Of the first panel's first block; two for each block.
    size_t scale_stride = 0;        // To those of the next panel, in floats.
};

struct Int8TileArguments : TileOf<int8_t, std::byte, int32_t> {
    const int32_t* row_sum = nullptr;  // [num_rows] Σ x of the row, modulo 2^32
};

// BlockSizes::near_rows of int4 weights, which cost more operations a byte: with two rows the far
// way has 1.11 times the speed already (Zen 4), and with four and more none is faster (Zen 5).
inline constexpr size_t kInt4NearRows = 1;

// The same with int8 rows, which cost fewer operations a byte.
inline constexpr size_t kW4a8NearRows = 4;

// Bits of a scale that are 0 in a short one: at most five significant bits.
inline constexpr int kInt4LongBf16Bits = 0x7;
inline constexpr int kInt4LongFp16Bits = 0x3f;

struct Int4TileArguments : TileOf<Bf16, std::byte, float> {
    Int4Groups groups{};
    bool is_mxfp4 = false;  // Nibbles are e2m1, and every scale is a short one in bf16.
};

// Rows of W4a8Rows (ops/format/w4a8_rows.h) and an int4 panel. The sums lack the row's scale.
struct W4a8TileArguments : TileOf<int8_t, std::byte, float> {
    Int4Groups groups{};

    // Of row r: what the sums of its groups begin with.
    [[gnu::always_inline]] const int32_t* group_starts(size_t r) const {
        return reinterpret_cast<const int32_t*>(x + r * x_stride + w4a8_values_bytes(depth));
    }
};

// A row of W4a8Rows from its values in order.
struct ArrangeArguments {
    const int8_t* q = nullptr;  // [depth]
    size_t depth = 0;
    size_t group_size = 0;  // 32 or 64
    int8_t* row = nullptr;  // out [w4a8_row_bytes(depth, group_size)], at a multiple of 4
};

struct UnpackArguments {
    const std::byte* panel = nullptr;  // Of int4 or mxfp4, from a group's begin on.
    Int4Groups groups{};
    size_t depth = 0;         // Elements to unpack.
    uint16_t* out = nullptr;  // A bf16 panel of this depth in the layout of the class.
    size_t fetch_ahead = 0;   // Bytes, of what is unpacked.
};

// Of int4 without zero points.
struct UnpackGroupsArguments : UnpackArguments {
    float* scales = nullptr;  // out [groups][32]: what multiplies the sums over a group.
};

// One bf16 panel, and what multiplies the sums over each group of its depth.
struct GroupTileArguments : TileArguments {
    size_t group_size = 0;
    const float* scales = nullptr;  // [groups][32]
};

using Fp8TileArguments = TileOf<Bf16, std::byte, float>;

struct UnpackFp8Arguments {
    const std::byte* values = nullptr;  // Of an fp8 panel, from an element that is a multiple of 4.
    size_t depth = 0;                   // Elements to unpack; rounded up to a multiple of 4.
    uint16_t* out = nullptr;            // A bf16 panel of that depth in the layout of the class.
    size_t fetch_ahead = 0;             // Bytes, of what is unpacked.
};

// What a block of fp8 weights adds to the sums of some rows of one panel.
struct BlockSumArguments {
    const float* products = nullptr;  // [num_rows][32], of the block alone
    const float* scales = nullptr;    // Of the first 16 columns and of the others.
    size_t num_rows = 0;
    bool goes_on = false;   // Added to what `sums` holds, otherwise to 0.
    float* sums = nullptr;  // [num_rows][32]
};

}  // namespace afd::ops::cpu
