// SPDX-License-Identifier: Apache-2.0
#pragma once

// How rows pass the panels of one packed matrix in a class with kernels of pieces, by weight
// format. Internal to ops/; for_each_panel_row() in panel_loop.h chooses.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/linear/piece_walk.h"
#include "ops/linear/pieces.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/tensor_view.h"
#include "proto/check.h"

namespace afd::ops {

// Panels of one matrix, and the kernels of its class.
struct PanelRange {
    const cpu::Kernels& kernels;
    const PackedLinear& weight;
    size_t first;
    size_t last;

    // x_bytes: of an element of x.
    PieceWalk walk(size_t num_rows, size_t x_bytes) const {
        const size_t piece = cpu::block_sizes().piece_row_bytes / x_bytes;
        return {weight.depth(), piece, first, last, RowBlocks(num_rows, kChunkRows)};
    }
};

// Rows of bf16 whose sums multiply(place, arguments) adds to.
template <typename Pieces, typename Finish, typename Multiply>
void pass_bf16_sums(const PanelRange& range,
                    Rows<const Bf16> x,
                    const Pieces& pieces,
                    const Finish& finish,
                    const Multiply& multiply) {
    const PieceWalk walk = range.walk(x.num_rows, sizeof(Bf16));
    alignas(64) float sums[kGroupSums];
    walk.run(
        pieces,
        [](const PiecePlace&) {},
        [&](const PiecePlace& place, cpu::PieceArguments& a) {
            set_rows(x, walk.chunks.first(place.chunk), place.k, place.depth, a);
            a.sums = reinterpret_cast<std::byte*>(sums);
            multiply(place, a);
        },
        [&](const PiecePlace& place) {
            const PlainSums done{sums, walk.chunks.rows(place.chunk)};
            finish_pieces(walk.chunks, place, done, finish);
        });
}

template <typename Pieces, typename Finish>
void pass_bf16_pieces(const PanelRange& range,
                      Rows<const Bf16> x,
                      const Pieces& pieces,
                      const Finish& finish) {
    pass_bf16_sums(
        range, x, pieces, finish, [&](const PiecePlace& /*place*/, const cpu::PieceArguments& a) {
            range.kernels.bf16_pieces(a);
        });
}

// int4 and mxfp4.
template <typename Finish>
void pass_nibble_pieces(const PanelRange& range, Rows<const Bf16> x, const Finish& finish) {
    const WeightFormat format = range.weight.format();
    const Int4Groups groups = int4_groups(format);
    const auto unpack_panel =
        format == WeightFormat::kMxfp4 ? range.kernels.unpack_mxfp4 : range.kernels.unpack_int4;
    const auto source = [&](size_t panel, size_t k, size_t depth) {
        return PieceSource{range.weight.panel_data(panel) + groups.offset(k),
                           div_up(depth, groups.size) * groups.bytes(groups.size)};
    };
    const auto unpack = [&](const std::byte* from, size_t depth, uint16_t* to) {
        unpack_panel({.panel = from,
                      .groups = groups,
                      .depth = depth,
                      .out = to,
                      .fetch_ahead = cpu::block_sizes().fetch_near});
    };
    alignas(64) std::byte rooms[2 * kUnpackedBytes];
    pass_bf16_pieces(range, x, UnpackedPieces(rooms, groups.size, source, unpack), finish);
}

// Elements of depth of fp8 weights that are unpacked at a time, between two steps of tiles.
constexpr size_t kFp8Unit = 32;

template <typename Finish>
void pass_fp8_pieces(const PanelRange& range, Rows<const Bf16> x, const Finish& finish) {
    static_assert(cpu::BlockSizes::kPieceRowBytesLeast % (kFp8BlockEdge * sizeof(Bf16)) == 0);
    const auto source = [&](size_t panel, size_t k, size_t depth) {
        return PieceSource{range.weight.panel_data(panel) + k * kPanelColumns,
                           depth * kPanelColumns};
    };
    const auto unpack = [&](const std::byte* from, size_t depth, uint16_t* to) {
        range.kernels.unpack_fp8({.values = from,
                                  .depth = depth,
                                  .out = to,
                                  .fetch_ahead = cpu::block_sizes().fetch_near});
    };
    alignas(64) std::byte rooms[2 * kUnpackedBytes];
    const UnpackedPieces pieces(rooms, kFp8Unit, source, unpack);
    pass_bf16_sums(range, x, pieces, finish, [&](const PiecePlace& place, const auto& arguments) {
        const std::byte* scales =
            range.weight.panel_data(place.panel) + fp8_values_bytes(range.weight.depth());
        cpu::Fp8PieceArguments a{arguments};
        a.scales = reinterpret_cast<const float*>(scales) + place.k / kFp8BlockEdge * 2;
        a.scale_stride = range.weight.panel_bytes() / sizeof(float);
        range.kernels.fp8_pieces(a);
    });
}

// Panels hold q + 128, so that sums, exact modulo 2^32, begin with -128 · Σ x.
inline void begin_int8_sums(const PanelRange& range,
                            const Int8Rows& x,
                            size_t num_panels,
                            int32_t* sums) {
    const size_t num_rows = x.values.num_rows;
    for (size_t r = 0; r < num_rows; ++r) {
        const int32_t sum = x.row_sum != nullptr
                                ? x.row_sum[r]
                                : range.kernels.sum_int8(x.values.row(r), range.weight.depth());
        const auto start = static_cast<int32_t>(-128u * static_cast<uint32_t>(sum));
        for (size_t p = 0; p < num_panels; ++p) {
            std::fill_n(sums + (p * num_rows + r) * kPanelColumns, kPanelColumns, start);
        }
    }
}

template <typename Finish>
void pass_int8_pieces(const PanelRange& range, const Int8Rows& x, const Finish& finish) {
    const PieceWalk walk = range.walk(x.values.num_rows, sizeof(int8_t));
    const RowBlocks& chunks = walk.chunks;
    alignas(64) int32_t sums[kGroupSums];
    walk.run(
        PlainPieces(range.weight, kPanelColumns),
        [&](const PiecePlace& place) {
            const Int8Rows rows = x.slice(chunks.first(place.chunk), chunks.rows(place.chunk));
            begin_int8_sums(range, rows, place.num_panels, sums);
        },
        [&](const PiecePlace& place, cpu::PieceArguments& a) {
            set_rows(x.values, chunks.first(place.chunk), place.k, place.depth, a);
            a.sums = reinterpret_cast<std::byte*>(sums);
            a.goes_on = true;
            range.kernels.int8_pieces(a);
        },
        [&](const PiecePlace& place) {
            alignas(64) float scaled[cpu::kTileFloats];
            const auto scale = [&](size_t p, size_t row, size_t count) {
                const std::byte* scales = range.weight.panel_data(place.panel + p) +
                                          int8_values_bytes(range.weight.depth());
                range.kernels.scale_tile(
                    sums + (p * chunks.rows(place.chunk) + row) * kPanelColumns,
                    x.row_scale + chunks.first(place.chunk) + row,
                    reinterpret_cast<const float*>(scales),
                    count,
                    scaled);
                return static_cast<const float*>(scaled);
            };
            finish_pieces(walk.chunks, place, scale, finish);
        });
}

// More rows than pass whole panels (cpu::TileShape), of any format. Calls finish as
// for_each_panel_row() does.
template <typename Finish>
void piece_panels(const PanelRange& range, const LinearInput& x, const Finish& finish) {
    switch (range.weight.format()) {
        case WeightFormat::kBf16: {
            const PlainPieces pieces(range.weight, kPanelColumns * sizeof(Bf16));
            return pass_bf16_pieces(range, x.rows, pieces, finish);
        }
        case WeightFormat::kInt8:
            AFD_ASSERT(x.int8.given(), "rows of a product with int8 weights were not quantised");
            return pass_int8_pieces(range, x.int8, finish);
        case WeightFormat::kFp8Block128:
            return pass_fp8_pieces(range, x.rows, finish);
        case WeightFormat::kInt4Group32:
        case WeightFormat::kInt4Group64:
        case WeightFormat::kInt4Group32Fp16:
        case WeightFormat::kInt4Group64Fp16:
        case WeightFormat::kMxfp4:
        case WeightFormat::kInt4Group32Zero:
        case WeightFormat::kInt4Group64Zero:
        case WeightFormat::kInt4Group32Fp16Zero:
        case WeightFormat::kInt4Group64Fp16Zero:
            return pass_nibble_pieces(range, x.rows, finish);
    }
}

}  // namespace afd::ops
