// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels: the innermost loops of ops/ for one numeric class (products with packed weights,
// attention of both kinds, norms, sums with the residual, quantisation and expansion of rows), and
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

#include "ops/cpu/attend_block.h"
#include "ops/cpu/block_sizes.h"
#include "ops/cpu/product_arguments.h"
#include "ops/cpu/quantised_rows.h"
#include "ops/format/expert_activation.h"
#include "ops/format/numeric_class.h"
#include "ops/format/packed_shape.h"
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
    // all rows, where these are 0. A class with an order of its own for int4 weights has kAllRows,
    // and for many rows unpack_groups and group_tile. No class has one for weights with zero
    // points, which have a number of rows of their own.
    size_t int4_rows = 0;  // <= rows
    size_t int4_product_rows = 0;
    size_t int4_zero_product_rows = 0;
    // The same of fp8_tile, unpack_fp8, tile and add_block.
    size_t fp8_rows = 0;  // <= rows
    size_t fp8_product_rows = 0;
    // Of w4a8_tile at most; 1 ... kTileRowsMax in every class. A product of more passes its rows
    // block by block.
    size_t w4a8_rows = 0;
    // Rows that pass whole panels at most, in a class with kernels of pieces: of bf16 and int8
    // weights, of int4 and mxfp4, and of fp8.
    size_t plain_panel_rows = kAllRows;
    size_t nibble_panel_rows = kAllRows;
    size_t fp8_panel_rows = kAllRows;

    static constexpr size_t kAllRows = std::numeric_limits<size_t>::max();

    size_t nibble_product_rows(WeightFormat format) const {
        return has_zero_points(format) ? int4_zero_product_rows : int4_product_rows;
    }

    size_t whole_panel_rows(WeightFormat format) const {
        if (format == WeightFormat::kFp8Block128) return fp8_panel_rows;
        return has_nibbles(format) ? nibble_panel_rows : plain_panel_rows;
    }

    // Panels that one call of tile takes for `num_rows` rows at most.
    size_t panels(size_t num_rows) const {
        return std::clamp<size_t>(row_panels / num_rows, 1, block_sizes().panels);
    }
};

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
    // they are; of fp8 panels block by block. Null, all three: any number of rows
    // passes whole panels (ops/linear/panel_passes.h).
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
    // Of a class with an order of its own for int4 weights, otherwise null: some groups as they are
    // multiplied, and out = x · Wᵀ for one tile of them, with the bits of int4_tile.
    void (*unpack_groups)(const UnpackGroupsArguments& arguments) = nullptr;
    void (*group_tile)(const GroupTileArguments& arguments) = nullptr;
    // out = ((q - zero) · scale) →bf16. Without zero points: unless shape.int4_product_rows is
    // kAllRows.
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
    // Heads of a group from which on attend_block, which takes keys in pairs as well as in rows, is
    // faster with them; 0: it takes rows alone.
    size_t key_pair_heads = 0;
    void (*begin_heads)(const HeadQueries& queries, const HeadsState& state);
    // Scores, a softmax step, o = o · alpha, then o += p · values, positions ascending.
    void (*attend_block)(const AttendBlock& block, const HeadsState& state);
    // The bits of attend_block with keys and values expanded, where a class is faster without;
    // otherwise null. REQUIRES: QuantisedBlock::takes(latent), and no more heads than
    // quantised_heads_max.
    void (*attend_quantised)(const QuantisedBlock& block, const HeadsState& state) = nullptr;
    QuantisedHeadsMax quantised_heads_max{};
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
    // A row to fp8 (ops/linear/fp8_rows.h).
    void (*encode_fp8)(const Bf16* x, size_t count, std::byte* row);
    // x [num_rows, count] = (q · scale) →bf16.
    void (*expand_fp8)(const QuantisedRows& rows, Bf16* x);
    void (*expand_int8)(const QuantisedRows& rows, Bf16* x);
    // x [count / 2][kAttentionBlock][2], likewise.
    void (*expand_fp8_pairs)(const QuantisedKeyPairs& keys, Bf16* x);
    void (*expand_int8_pairs)(const QuantisedKeyPairs& keys, Bf16* x);
    // x = (q / scale) →bf16, a scale for each element.
    void (*expand_int8_channels)(const int8_t* q, const float* scale, size_t count, Bf16* x);
};

// REQUIRES: supported(numeric_class).
const Kernels& kernels(NumericClass numeric_class);

// For what has the same bits in every class: the table of the newest instructions that this
// processor has, whichever class is its fastest.
const Kernels& best_kernels();

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
// Class avx512 without VNNI, with it, and with VBMI besides; kernels() takes the last that this
// processor has.
const Kernels& avx512_kernels();
const Kernels& avx512_vnni_kernels();
const Kernels& avx512_vbmi_kernels();
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
