// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels: the innermost loops of linear, grouped_ffn and mla_attention for one numeric class, and
// what the code around them has to know of the class (TileShape).
//
// Each kernels_<class>.cc fills one table: a copy of the next simpler class's, in which it names
// what it has of its own. What only one class includes lies in its folder; the headers beside this
// one are compiled by several. Everything around them (shapes, tasks, scratch) is portable code in
// ops/ that asks the table and never for the class; docs/adding/kernel_class.md says how to add
// one. The files for newer instruction sets are compiled with their own flags, so they define
// nothing with external linkage but the table, and the headers that they share keep their functions
// in an unnamed namespace: otherwise the linker could pick an AVX-512 copy of an inline function
// for every processor.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ops/cpu/block_sizes.h"
#include "ops/format/attention_batch.h"
#include "ops/format/expert_activation.h"
#include "ops/format/numeric_class.h"
#include "ops/format/packed_shape.h"
#include "ops/format/w4a8_rows.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"

namespace afd::ops::cpu {

// Bounds of any class's tile, for arrays: rows · panels, and sums.
inline constexpr size_t kTileRowsMax = 32;
inline constexpr size_t kTileFloats = kTileRowsMax * kPanelColumns;

// The tiles of a class.
struct TileShape {
    size_t rows = 0;  // Of tile and int8_tile at most; <= kTileRowsMax
    // What one call of tile covers at least, rows · panels, as long as there are panels: few
    // rows need more columns, else too few sums are in flight to hide the latency of the
    // multiplier.
    size_t row_panels = 0;  // <= rows
    // Rows of tile and int8_tile that fetch their weights to the first-level cache at most
    // (FetchAhead), if BlockSizes::near_rows is not less: none of a class whose loads are as fast
    // from the second-level one.
    size_t near_rows = kAllRows;
    // Of int4_tile at most, and of a product whose rows pass it block by block. More rows are the
    // work of unpack_int4 or unpack_mxfp4, which make bf16 panels, and tile, with the same bits;
    // all rows, where these are 0. A class with an order of its own for int4 weights has kAllRows.
    size_t int4_rows = 0;  // <= rows
    size_t int4_product_rows = 0;
    // The same of fp8_tile, unpack_fp8, tile and add_block.
    size_t fp8_rows = 0;  // <= rows
    size_t fp8_product_rows = 0;
    // Of w4a8_tile at most; 1 ... kTileRowsMax in every class. A product of more passes its rows
    // block by block.
    size_t w4a8_rows = 0;

    static constexpr size_t kAllRows = std::numeric_limits<size_t>::max();

    // Panels that one call of tile takes for `num_rows` rows at most.
    size_t panels(size_t num_rows) const {
        return std::clamp<size_t>(row_panels / num_rows, 1, block_sizes().panels);
    }
};

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
    size_t group_size = 0;
    bool has_fp16_scales = false;
    bool is_mxfp4 = false;  // Nibbles are e2m1, and every scale is a short one in bf16.
};

// Rows of W4a8Rows (ops/format/w4a8_rows.h) and an int4 panel. The sums lack the row's scale.
struct W4a8TileArguments : TileOf<int8_t, std::byte, float> {
    size_t group_size = 0;
    bool has_fp16_scales = false;

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
    size_t group_size = 0;
    bool has_fp16_scales = false;
    size_t depth = 0;         // Elements to unpack.
    uint16_t* out = nullptr;  // A bf16 panel of this depth in the layout of the class.
    size_t fetch_ahead = 0;   // Bytes, of what is unpacked.
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

// Most heads of one HeadsState.
inline constexpr size_t kHeadsMax = 16;

// Attention of some heads that share their keys, of one token or of several: begin_heads,
// attend_block for every block of positions, finish_heads. In between, the arrays hold what the
// class wants to find there. The words are those of latent attention
// (ops/attention/mla_attention.h); with grouped heads (ops/attention/gqa_attention.h) `latent` is
// the head's width, `rope` 0, and values are apart.
struct HeadsState {
    size_t num_heads = 0;  // 1 ... kHeadsMax
    size_t latent = 0;
    size_t rope = 0;
    size_t o_stride = 0;       // latent rounded up to 32
    Bf16* query = nullptr;     // query_elements(latent, rope)
    float* scores = nullptr;   // [kHeadsMax · kAttentionBlock]
    Bf16* p = nullptr;         // [kHeadsMax · kAttentionBlock]
    float* o = nullptr;        // [num_heads][o_stride]
    float* maximum = nullptr;  // [kHeadsMax], as the next two
    float* sum = nullptr;
    float* alpha = nullptr;
};

// Heads are padded to kHeadsMax, and elements to sixteen floats.
constexpr size_t query_width(size_t count) {
    return (count + 15) / 16 * 16;
}
constexpr size_t query_elements(size_t latent, size_t rope) {
    constexpr size_t kFloat = sizeof(float) / sizeof(Bf16);
    return kHeadsMax * (query_width(latent) + query_width(rope)) * kFloat;
}

struct HeadQueries {
    const Bf16* query = nullptr;       // [num_heads][latent]
    const Bf16* query_rope = nullptr;  // [num_heads][rope]
    // [num_heads]: a score of each head that no position has; null: none. begin_heads() leaves them
    // alone (ops/attention/head_attention.h).
    const float* sinks = nullptr;
};

// Heads of one state, and how many of a block's positions they attend to, from its first one on.
struct HeadsSpan {
    const HeadsState* state = nullptr;
    size_t first_head = 0;
    size_t last_head = 0;  // One behind.
    size_t num_positions = 0;
};
inline constexpr size_t kHeadsSpansMax = kAttentionBlock;  // Of one call.

// At most kAttentionBlock consecutive positions, and the heads of the state that attend to them;
// the others keep what they have.
struct AttendBlock {
    size_t first_head = 0;
    size_t last_head = kHeadsMax;  // One behind; the state's last one at most.
    const Bf16* ckv = nullptr;     // [num_positions][latent]; with keys_in_pairs see there.
    const Bf16* kr = nullptr;      // [num_positions][rope]
    // What is summed, [num_positions][latent]; null: ckv itself.
    const Bf16* values = nullptr;
    size_t num_positions = 0;  // 1 ... kAttentionBlock
    float scale = 1.0f;
    bool is_cold = false;  // No block named it as its next.
    // ckv and next_ckv are KeyOrder::kPairs (ops/format/gqa_cache.h), from the pair of the first
    // position on, rope is 0 and values are apart. For Kernels::reads_key_pairs.
    bool keys_in_pairs = false;
    // The rows that will be asked for next, num_next of each, to be fetched meanwhile.
    const Bf16* next_ckv = nullptr;
    const Bf16* next_kr = nullptr;
    size_t num_next = 0;
    // What will be asked for after the last block, to be fetched meanwhile as far as that goes.
    std::span<const std::byte> afterwards{};

    const Bf16* summed() const { return values != nullptr ? values : ckv; }
    size_t end_of_heads(const HeadsState& state) const {
        return std::min(last_head, state.num_heads);
    }
    // What the span attends to.
    [[gnu::always_inline]] AttendBlock of(const HeadsSpan& span) const {
        AttendBlock block = *this;
        block.first_head = span.first_head;
        block.last_head = span.last_head;
        block.num_positions = span.num_positions;
        return block;
    }
};

// Elements that attend_spans needs to have room for: what is summed of half a block.
constexpr size_t spans_room_elements(size_t latent) {
    return kAttentionBlock / 2 * ((latent + 31) / 32 * 32);
}

// h = an ExpertActivation of gate →bf16 and, where it is gated, up →bf16.
using ActivateRow = void (*)(const float* gate, const float* up, size_t count, Bf16* h);

// Where divide_row_f32 leaves what bf16 has not room for.
struct NormRest {
    Bf16* middle = nullptr;
    Bf16* low = nullptr;
};

// The mean of a row, and the mean square of what its elements are away from it.
struct RowMoments {
    float mean = 0;
    float variance = 0;
};

// What a LayerNorm does to an element of column i: (x − mean) / root · gamma[i] + beta[i].
struct LayerNormRow {
    float mean = 0;
    float root = 1;
    const Bf16* gamma = nullptr;
    const Bf16* beta = nullptr;
};

// What happens to rows between the matrices; the same bits in every class.
struct ResidualKernels {
    // Σ x², in the order of ops/attention/rms_norm.h.
    float (*sum_of_squares)(const Bf16* x, size_t count);
    // y = ((x / root) →bf16 · gamma) →bf16
    void (*divide_row)(const Bf16* x, float root, const Bf16* gamma, size_t count, Bf16* y);
    // y = (x / root · gamma · scale) →bf16
    void (*divide_row_scaled)(
        const Bf16* x, float root, const Bf16* gamma, float scale, size_t count, Bf16* y);
    // sum = (sum + delta) →bf16
    void (*add_row)(const Bf16* delta, size_t count, Bf16* sum);
    // sums = sums + weight · row, the product rounded to fp32 before it is added.
    void (*add_weighted_row)(const Bf16* row, float weight, size_t count, float* sums);
    // y = sums →bf16
    void (*store_sums)(const float* sums, size_t count, Bf16* y);
    // Of rows in fp32: Σ x² in the same order; y = (x / root · gamma) →bf16, and what its first and
    // its second rounding leave, →bf16 each (null: not wanted); sum = sum + delta.
    float (*sum_of_squares_f32)(const float* x, size_t count);
    void (*divide_row_f32)(
        const float* x, float root, const Bf16* gamma, size_t count, Bf16* y, NormRest rest);
    void (*add_row_f32)(const Bf16* delta, size_t count, float* sum);
    // LayerNorm (ops/attention/layer_norm.h): both sums in the order of sum_of_squares; y = what
    // LayerNormRow says →bf16, and of rows in fp32 also what the roundings leave.
    RowMoments (*moments)(const Bf16* x, size_t count);
    void (*layer_norm_row)(const Bf16* x, const LayerNormRow& norm, size_t count, Bf16* y);
    RowMoments (*moments_f32)(const float* x, size_t count);
    void (*layer_norm_row_f32)(
        const float* x, const LayerNormRow& norm, size_t count, Bf16* y, NormRest rest);
};

struct Kernels {
    TileShape shape;
    // out = x · Wᵀ for one tile; a column's chain over k is the same for every tile shape.
    void (*tile)(const TileArguments& arguments);
    // sums += x · Wᵀ for a piece of bf16 panels, with the bits of tile; of int8 panels (q + 128) as
    // they are; of fp8 panels block by block. Null, all three: more rows than a tile has pass whole
    // panels (ops/linear/panel_passes.h).
    void (*bf16_pieces)(const PieceArguments& arguments) = nullptr;
    void (*int8_pieces)(const PieceArguments& arguments) = nullptr;
    void (*fp8_pieces)(const Fp8PieceArguments& arguments) = nullptr;
    // Σ x, modulo 2^32.
    int32_t (*sum_int8)(const int8_t* x, size_t count);
    // out = the exact sums of x · Wᵀ.
    void (*int8_tile)(const Int8TileArguments& arguments);
    // out = x · Wᵀ for one tile, in the class's order for int4 and mxfp4 weights. For
    // shape.int4_rows > 0.
    void (*int4_tile)(const Int4TileArguments& arguments);
    // out = the sums of Int4Rows::kInt8 (ops/format/int4_rows.h), the same bits in every class.
    void (*w4a8_tile)(const W4a8TileArguments& arguments);
    void (*arrange_w4a8)(const ArrangeArguments& arguments);
    // out = (q · scale) →bf16. Unless shape.int4_product_rows is kAllRows.
    void (*unpack_int4)(const UnpackArguments& arguments);
    // out = e2m1 · scale, exactly.
    void (*unpack_mxfp4)(const UnpackArguments& arguments);
    // out = x · Wᵀ for one tile of a whole fp8 panel. For shape.fp8_rows > 0.
    void (*fp8_tile)(const Fp8TileArguments& arguments);
    // out = the values, exactly.
    void (*unpack_fp8)(const UnpackFp8Arguments& arguments);
    // sums = sums + scale · products, as the class multiplies and adds.
    void (*add_block)(const BlockSumArguments& arguments);
    // y[i] = (float(sums[i]) · row_scale) · column_scale[i].
    void (*scale_row)(
        const int32_t* sums, float row_scale, const float* column_scale, size_t count, float* y);
    // y[i] = exp((x[i] - maximum) / temperature).
    void (*exp_row)(const float* x, float maximum, float temperature, size_t count, float* y);
    // y = x →bf16.
    void (*round_row)(const float* x, size_t count, Bf16* y);
    // The same for `count` rows of the 32 sums of a panel, one behind the other; the result of row
    // i goes to y[i] or h[i]. swiglu_tile: 16 sums of gate and the 16 of up.
    void (*scale_tile)(const int32_t* sums,
                       const float* row_scale,  // [count]
                       const float* column_scale,
                       size_t count,
                       float* y);
    void (*round_tile)(const float* sums, size_t count, Bf16* const* y);
    void (*swiglu_tile)(const float* sums, size_t count, Bf16* const* h);
    // h = (silu(gate →bf16) · (up →bf16)) →bf16.
    void (*swiglu_row)(const float* gate, const float* up, size_t count, Bf16* h);
    // One online-softmax step of one head: scores [kAttentionBlock] of which num_positions are
    // valid; updates the running maximum and sum, gives p →bf16 (zero beyond) and the factor alpha.
    void (*softmax_step)(
        float* scores, size_t num_positions, float* maximum, float* sum, float* alpha, Bf16* p);
    // Whether attend_block takes keys in pairs as well as in rows, and is faster with them.
    bool reads_key_pairs = false;
    void (*begin_heads)(const HeadQueries& queries, const HeadsState& state);
    // Scores, a softmax step, o = o · alpha, then o += p · values, positions ascending.
    void (*attend_block)(const AttendBlock& block, const HeadsState& state);
    // The bits of attend_block(block.of(span)) for each span, where a class is faster with several
    // states at once; otherwise null, and its tokens go one by one. Class amx has it in every
    // table, so that what calls it is tested on every processor. States have the same widths, spans
    // of one follow each other, and what a span does not attend to has no influence on it.
    void (*attend_spans)(const AttendBlock& block,
                         std::span<const HeadsSpan> spans,
                         Bf16* room) = nullptr;  // [spans_room_elements(latent)]
    // latent [num_heads][latent] = (o / sum) →bf16.
    void (*finish_heads)(const HeadsState& state, Bf16* latent);
    // Dynamic quantisation of rows that follow each other (ops/linear/quantise.h): x, q [num_rows,
    // count], scale [num_rows]. is_streamed: q may go past the caches; what the caller stores
    // afterwards is ordered behind it.
    template <typename T>
    using QuantiseRows = void (*)(const T* x,
                                  const float* smooth,
                                  size_t num_rows,
                                  size_t count,
                                  int8_t* q,
                                  float* scale,
                                  bool is_streamed);
    QuantiseRows<Bf16> quantise_bf16;
    QuantiseRows<Fp16> quantise_fp16;
    QuantiseRows<float> quantise_fp32;
    // By ExpertActivation; the first is swiglu_row. Ungated ones do not look at `up`.
    std::array<ActivateRow, kNumExpertActivations> activate_rows;
    ResidualKernels residual;
    // A row to fp8 and back (ops/linear/fp8_rows.h).
    void (*encode_fp8)(const Bf16* x, size_t count, std::byte* row);
    void (*expand_fp8)(const std::byte* row, size_t count, Bf16* x);
    // x = (q · scale) →bf16 (ops/attention/kv_tiles.h).
    void (*expand_int8)(const int8_t* q, float scale, size_t count, Bf16* x);
    // x = (q / scale) →bf16, a scale for each element.
    void (*expand_int8_channels)(const int8_t* q, const float* scale, size_t count, Bf16* x);
};

// REQUIRES: supported(numeric_class).
const Kernels& kernels(NumericClass numeric_class);

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
// Class avx512 without and with VNNI; kernels() takes the second where this processor has it.
const Kernels& avx512_kernels();
const Kernels& avx512_vnni_kernels();
const Kernels& avx512_bf16_kernels();

// Class amx with the instruction (REQUIRES: is_native(NumericClass::kAmx)) and, with the same bits,
// without it. kernels() takes the fastest that this processor has.
const Kernels& amx_kernels();
const Kernels& amx_avx512_kernels();
const Kernels& amx_avx2_kernels();
const Kernels& amx_portable_kernels();

// For tests: kernels(NumericClass::kAmx) takes another table of the class from now on, and gives
// back the one before. REQUIRES: no product runs.
const Kernels& exchange_amx_kernels(const Kernels& kernels);

}  // namespace afd::ops::cpu
