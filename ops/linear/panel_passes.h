// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ways in which rows pass the panels of one packed matrix, by weight format: whole panels, or
// parts of them that were unpacked to the first-level cache or stay in the second-level one.
// Internal to ops/; for_each_panel_row() in panel_loop.h chooses among them.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/linear/panel_finish.h"
#include "ops/linear/tile_products.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// Blocks of rows x panels of one matrix, panels outside, so that their weights stay in cache while
// the rows pass. Calls begin(cover) before each tile, and what it gave with the sums afterwards.
// Passes of at most 96, 128 or 192 rows over the matrix had 0.99 to 1.03 of the speed, on one
// thread.
template <typename Product, typename Begin>
void for_each_tile(Product product, size_t first_panel, size_t last_panel, const Begin& begin) {
    using Arguments = typename Product::Arguments;
    const PackedLinear& weight = product.weight;
    const auto& x = product.x;
    const RowBlocks blocks(x.num_rows, product.rows_max);
    const PanelFetch fetch{weight, blocks.count, product.num_steps, first_panel, last_panel};
    const size_t at_once = product.panels_at_once(blocks);
    alignas(64) std::remove_pointer_t<decltype(Arguments::out)> sums[cpu::kTileFloats];
    for (size_t panel = first_panel; panel < last_panel; panel += at_once) {
        const size_t num_panels = std::min(at_once, last_panel - panel);
        const size_t panels_per_call = Product::kIsByPanel ? 1 : num_panels;
        for (size_t block = 0; block < blocks.count; ++block) {
            const size_t first_row = blocks.first(block);
            const size_t num_rows = blocks.rows(block);
            const auto finish =
                begin(TileCover{first_row, num_rows, panel, num_panels, Product::kIsByPanel});
            Arguments a;
            a.x = x.row(first_row);
            a.x_stride = x.stride;
            a.num_rows = num_rows;
            a.depth = weight.depth();
            // The rows behind them find the panel in a cache.
            if (block == 0) {
                a.fetch_ahead = cpu::FetchAhead::of_rows(num_rows, product.near_rows_max);
            }
            a.next_x = blocks.count > 1 ? x.row(blocks.first_of_next(block)) : nullptr;
            product.begin_block(first_row, a);
            for (size_t p = 0; p < num_panels; p += panels_per_call) {
                a.panel = reinterpret_cast<decltype(a.panel)>(weight.panel_data(panel + p));
                a.out = sums + p * num_rows * kPanelColumns;
                a.fetch_next = fetch.next(panel + p, block);
                product.multiply(a, panels_per_call);
            }
            finish(sums);
        }
    }
}

template <typename Product, typename Finish>
void float_panels(const Product& product,
                  size_t first_panel,
                  size_t last_panel,
                  const Finish& finish) {
    for_each_tile(product, first_panel, last_panel, [&](const TileCover& cover) {
        return TileTargets(finish, cover);
    });
}

template <typename Finish>
void int8_panels(const Int8Rows& x,
                 const PackedLinear& weight,
                 size_t first_panel,
                 size_t last_panel,
                 const Finish& finish) {
    const auto scale_tile = cpu::kernels(weight.numeric_class()).scale_tile;
    alignas(64) float scaled[cpu::kTileFloats];
    const auto begin = [&](const TileCover& cover) {
        return [&, cover, targets = TileTargets(finish, cover)](const int32_t* sums) {
            const size_t panel_sums = cover.num_rows * kPanelColumns;
            for (size_t p = 0; p < cover.num_panels; ++p) {
                const std::byte* scales =
                    weight.panel_data(cover.panel + p) + int8_values_bytes(weight.depth());
                scale_tile(sums + p * panel_sums,
                           x.row_scale + cover.first_row,
                           reinterpret_cast<const float*>(scales),
                           cover.num_rows,
                           scaled + p * panel_sums);
            }
            targets(scaled);
        };
    };
    for_each_tile(Int8Product{weight, x}, first_panel, last_panel, begin);
}

template <typename Finish>
void w4a8_panels(const W4a8Rows& x,
                 const PackedLinear& weight,
                 size_t first_panel,
                 size_t last_panel,
                 const Finish& finish) {
    const auto begin = [&](const TileCover& cover) {
        return [&x, cover, targets = TileTargets(finish, cover)](float* sums) {
            cover.for_each([&](size_t i, size_t row, size_t /*panel*/) {
                float* row_sums = sums + i * kPanelColumns;
                for (size_t c = 0; c < kPanelColumns; ++c) row_sums[c] *= x.row_scale[row];
            });
            targets(sums);
        };
    };
    for_each_tile(w4a8_product(weight, x.values), first_panel, last_panel, begin);
}

// The sums of one panel and the rows from `top` on go to their finisher.
template <typename Finish>
void finish_blocks(
    const RowBlocks& blocks, size_t top, size_t panel, const float* sums, const Finish& finish) {
    for (size_t block = 0; block < blocks.count; ++block) {
        const size_t first = blocks.first(block);
        const TileCover cover{top + first, blocks.rows(block), panel, 1, true};
        TileTargets(finish, cover)(sums + first * kPanelColumns);
    }
}

// Products with bf16 panels that come piece by piece: piece(panel, k, depth) gives elements
// [k, k + depth) of one, in the layout of the class; the first rows that meet it fetch
// `fetch_ahead`. multiply(arguments) is the class's product of a tile. The sums of some rows go on
// from piece to piece.
template <typename Piece, typename Multiply, typename Finish>
void piecewise_panels(const cpu::Kernels& kernels,
                      Rows<const Bf16> x,
                      const PackedLinear& weight,
                      size_t first_panel,
                      size_t last_panel,
                      size_t piece_depth,
                      cpu::FetchAhead fetch_ahead,
                      const Piece& piece,
                      const Multiply& multiply,
                      const Finish& finish) {
    const size_t piece_rows = cpu::block_sizes().piece_rows;
    alignas(64) float sums[cpu::BlockSizes::kPieceRowsMax * kPanelColumns];
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
        for (size_t top = 0; top < x.num_rows; top += piece_rows) {
            const RowBlocks blocks(std::min(piece_rows, x.num_rows - top), kernels.shape.rows);
            for (size_t k = 0; k < weight.depth(); k += piece_depth) {
                const size_t depth = std::min(piece_depth, weight.depth() - k);
                cpu::TileArguments a;
                a.panel = piece(panel, k, depth);
                a.fetch_ahead = fetch_ahead;
                a.panel_elements = depth * kPanelColumns;
                a.x_stride = x.stride;
                a.depth = depth;
                a.goes_on = k > 0;
                for (size_t block = 0; block < blocks.count; ++block) {
                    a.x = x.row(top + blocks.first(block)) + k;
                    a.num_rows = blocks.rows(block);
                    a.out = &sums[blocks.first(block) * kPanelColumns];
                    multiply(a);
                    a.fetch_ahead = {};  // In cache by now.
                }
            }
            finish_blocks(blocks, top, panel, sums, finish);
        }
    }
}

// int4 and mxfp4 weights that are unpacked once for all rows, piece by piece: unpack(arguments)
// makes a bf16 panel of one, which multiply(arguments) of a tile then meets.
template <typename Unpack, typename Multiply, typename Finish>
void unpacked_panels(Rows<const Bf16> x,
                     const PackedLinear& weight,
                     size_t first_panel,
                     size_t last_panel,
                     const Unpack& unpack,
                     const Multiply& multiply,
                     const Finish& finish) {
    const cpu::BlockSizes& sizes = cpu::block_sizes();
    const Int4Groups groups = int4_groups(weight.format());
    alignas(64) uint16_t unpacked[cpu::BlockSizes::kPieceDepthMax * kPanelColumns];
    const auto piece = [&](size_t panel, size_t k, size_t depth) {
        unpack(cpu::UnpackArguments{.panel = weight.panel_data(panel) + groups.offset(k),
                                    .groups = groups,
                                    .depth = depth,
                                    .out = unpacked,
                                    .fetch_ahead = sizes.fetch_near});
        return static_cast<const uint16_t*>(unpacked);
    };
    // Just written, so in cache.
    const cpu::FetchAhead none{};
    piecewise_panels(cpu::kernels(weight.numeric_class()),
                     x,
                     weight,
                     first_panel,
                     last_panel,
                     sizes.piece_depth,
                     none,
                     piece,
                     multiply,
                     finish);
}

// In a class with the order of bf16 for them.
template <typename Finish>
void unpacked_nibble_panels(Rows<const Bf16> x,
                            const PackedLinear& weight,
                            size_t first_panel,
                            size_t last_panel,
                            const Finish& finish) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    const auto unpack =
        weight.format() == WeightFormat::kMxfp4 ? kernels.unpack_mxfp4 : kernels.unpack_int4;
    unpacked_panels(x, weight, first_panel, last_panel, unpack, kernels.tile, finish);
}

// Whether more rows than a tile has are faster with weights that are unpacked once, in a class with
// an order of its own for int4: they are with long scales, with which unpacking takes longer than
// multiplying. Scales are long throughout or nowhere as a rule, and the bits are the same, so one
// group is asked.
inline bool pays_to_unpack_groups(const cpu::Kernels& kernels,
                                  Rows<const Bf16> x,
                                  const PackedLinear& weight,
                                  size_t panel) {
    if (kernels.group_tile == nullptr || x.num_rows <= kernels.shape.int4_rows) return false;
    if (!is_int4(weight.format()) || has_zero_points(weight.format())) return false;
    const int long_bits =
        has_fp16_scales(weight.format()) ? cpu::kInt4LongFp16Bits : cpu::kInt4LongBf16Bits;
    const auto* scales = reinterpret_cast<const uint16_t*>(weight.panel_data(panel));
    return std::any_of(
        scales, scales + kPanelColumns, [&](uint16_t bits) { return (bits & long_bits) != 0; });
}

// int4 in such a class.
template <typename Finish>
void unpacked_group_panels(Rows<const Bf16> x,
                           const PackedLinear& weight,
                           size_t first_panel,
                           size_t last_panel,
                           const Finish& finish) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    const size_t group_size = int4_group_size(weight.format());
    static_assert(cpu::BlockSizes::kDepths % 64 == 0, "pieces end where groups do");
    alignas(64) float scales[cpu::BlockSizes::kPieceDepthMax / 32 * kPanelColumns];
    const auto unpack = [&](const cpu::UnpackArguments& panel) {
        kernels.unpack_groups({panel, scales});
    };
    const auto multiply = [&](const cpu::TileArguments& tile) {
        kernels.group_tile({tile, group_size, scales});
    };
    unpacked_panels(x, weight, first_panel, last_panel, unpack, multiply, finish);
}

// bf16. Pieces of a panel stay in the second-level cache.
template <typename Finish>
void bf16_panels(const cpu::Kernels& kernels,
                 Rows<const Bf16> x,
                 const PackedLinear& weight,
                 size_t first_panel,
                 size_t last_panel,
                 const Finish& finish) {
    const cpu::TileShape& shape = kernels.shape;
    const cpu::BlockSizes& sizes = cpu::block_sizes();
    if (weight.depth() <= sizes.panel_depth || x.num_rows <= shape.rows) {
        return float_panels(Bf16Product{weight, x, kernels}, first_panel, last_panel, finish);
    }
    const auto piece = [&](size_t panel, size_t k, size_t /*depth*/) {
        return weight.panel(panel) + k * kPanelColumns;
    };
    const cpu::FetchAhead ahead = cpu::FetchAhead::far();
    piecewise_panels(kernels,
                     x,
                     weight,
                     first_panel,
                     last_panel,
                     sizes.panel_depth,
                     ahead,
                     piece,
                     kernels.tile,
                     finish);
}

// fp8 where fp8_tile does not do it: a panel is unpacked some blocks at a time; every block of rows
// of up to piece_rows meets them while they are in cache, and adds the scaled products of each to
// its sums. One block at a time reads x in bursts too short for the processor to see what follows.
template <typename Finish>
void unpacked_fp8_panels(Rows<const Bf16> x,
                         const PackedLinear& weight,
                         size_t first_panel,
                         size_t last_panel,
                         const Finish& finish) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    const cpu::BlockSizes& sizes = cpu::block_sizes();
    static_assert(cpu::BlockSizes::kDepths % kFp8BlockEdge == 0);
    alignas(64) uint16_t unpacked[cpu::BlockSizes::kPieceDepthMax * kPanelColumns];
    alignas(64) float products[cpu::kTileFloats];
    alignas(64) float sums[cpu::BlockSizes::kPieceRowsMax * kPanelColumns];
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
        const std::byte* values = weight.panel_data(panel);
        const auto* scales =
            reinterpret_cast<const float*>(values + fp8_values_bytes(weight.depth()));
        for (size_t top = 0; top < x.num_rows; top += sizes.piece_rows) {
            const RowBlocks blocks(std::min(sizes.piece_rows, x.num_rows - top),
                                   kernels.shape.rows);
            for (size_t first = 0; first < weight.depth(); first += sizes.piece_depth) {
                const size_t last = std::min(first + sizes.piece_depth, weight.depth());
                kernels.unpack_fp8({.values = values + first * kPanelColumns,
                                    .depth = last - first,
                                    .out = unpacked,
                                    .fetch_ahead = sizes.fetch_near});
                for (size_t block = 0; block < blocks.count; ++block) {
                    const size_t first_row = blocks.first(block);
                    for (size_t k = first; k < last; k += kFp8BlockEdge) {
                        cpu::TileArguments a;
                        a.x = x.row(top + first_row) + k;
                        a.x_stride = x.stride;
                        a.num_rows = blocks.rows(block);
                        a.panel = unpacked + (k - first) * kPanelColumns;
                        a.depth = std::min(kFp8BlockEdge, last - k);
                        a.panel_elements = a.depth * kPanelColumns;
                        a.out = products;
                        kernels.tile(a);
                        kernels.add_block({.products = products,
                                           .scales = scales + k / kFp8BlockEdge * 2,
                                           .num_rows = a.num_rows,
                                           .goes_on = k > 0,
                                           .sums = &sums[first_row * kPanelColumns]});
                    }
                }
            }
            finish_blocks(blocks, top, panel, sums, finish);
        }
    }
}

}  // namespace afd::ops
