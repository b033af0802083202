// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loops around the tile kernel: rows x panels of one packed matrix, shared by linear and
// grouped_ffn. Internal to ops/.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/linear/panel_finish.h"
#include "ops/tensor/task_cuts.h"
#include "ops/tensor/tensor_view.h"
#include "proto/check.h"

namespace afd::ops {

// Work below this many multiply-adds is not worth handing to another thread: about 10 us.
inline constexpr size_t kTaskProducts = size_t{1} << 18;

// Few rows wait for their weights, not for the multiplier: they take as long as this many, and are
// cut into tasks as this many.
inline constexpr size_t kMemoryBoundRows = 4;

inline size_t div_up(size_t value, size_t by) {
    return (value + by - 1) / by;
}

// Panels of depth `depth` that are worth a task for `num_rows` rows.
inline size_t panels_per_task(size_t num_rows, size_t depth) {
    const size_t panel_products = std::max(num_rows, kMemoryBoundRows) * kPanelColumns * depth;
    return div_up(kTaskProducts, std::max<size_t>(panel_products, 1));
}

// Runs the tasks on the calling thread if all of them together, `num_products` multiply-adds, are
// not worth waking another one.
template <typename Body>
void run_where_it_pays(Parallel& parallel,
                       size_t num_tasks,
                       size_t num_products,
                       const Body& body) {
    if (num_tasks > 1 && num_products >= 2 * kTaskProducts) {
        parallel.run(num_tasks, body);
        return;
    }
    for (size_t task = 0; task < num_tasks; ++task) body(task, 0u);
}

// Elements of depth of an int4 panel that are unpacked at a time: 32 KiB of bf16.
inline constexpr size_t kUnpackDepth = 512;

// Rows of x are taken in blocks of nearly equal size, at most `rows_max` each.
struct RowBlocks {
    size_t num_rows;
    size_t count;

    RowBlocks(size_t rows, size_t rows_max) : num_rows(rows), count(div_up(rows, rows_max)) {}
    size_t first(size_t block) const { return block * num_rows / count; }
    // The first row of the block that comes after it, the first one again after the last.
    size_t first_of_next(size_t block) const { return block + 1 == count ? 0 : first(block + 1); }
    size_t rows(size_t block) const { return first(block + 1) - first(block); }
};

// What the blocks of rows fetch while they pass the panels of `weight` before `last_panel`: each
// its part of the next panel, so that memory is asked for as evenly as the multiplier is. A single
// block, and the first one at the first panel, fetches its own.
struct PanelFetch {
    const PackedLinear& weight;
    size_t num_blocks;
    size_t num_steps;  // Of a tile.
    size_t first_panel;
    size_t last_panel;

    cpu::FetchNext next(size_t panel, size_t block) const {
        const bool is_first = panel == first_panel;
        if (num_blocks == 1 || (is_first && block == 0)) return {};
        // Nothing: a line that is in cache.
        if (panel + 1 == last_panel) return {.from = weight.panel_data(panel), .step_bytes = 0};
        const size_t num_parts = is_first ? num_blocks - 1 : num_blocks;
        const size_t part = is_first ? block - 1 : block;
        const size_t bytes = weight.panel_bytes();
        return {.from = weight.panel_data(panel + 1) + part * bytes / num_parts,
                .step_bytes = std::min<size_t>(64, bytes / (num_parts * num_steps) + 1)};
    }
};

// What differs between the weight formats in for_each_tile: x, how tiles are cut, and the call of
// the kernel.

// bf16: one call takes several panels; sums by row, then panel.
struct Bf16Product {
    using Arguments = cpu::TileArguments;
    static constexpr bool kIsByPanel = false;

    const PackedLinear& weight;
    Rows<const Bf16> x;
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    size_t rows_max = kernels.shape.rows;
    size_t near_rows_max = cpu::kPrefetchNearRows;
    size_t num_steps = div_up(weight.depth(), 2);  // That fetch a line.

    size_t panels_at_once(const RowBlocks& blocks) const {
        return kernels.shape.panels(div_up(blocks.num_rows, blocks.count));
    }
    void begin_block(size_t /*first_row*/, Arguments& a) const {
        a.panel_elements = weight.panel_elements();
    }
    void multiply(Arguments& a, size_t num_panels) const {
        a.num_panels = num_panels;
        kernels.tile(a);
    }
};

// Panels of int8 and int4 weights whose sums are finished together, for `num_rows` rows in all:
// finishing those of one row alone takes hardly less time, as the steps of SwiGLU wait for each
// other (four at once: 1.03 to 1.07 of the speed of a single row).
inline size_t panels_finished_at_once(const RowBlocks& blocks, size_t tile_rows) {
    constexpr size_t kMost = 4;
    return blocks.count > 1 ? 1 : std::clamp<size_t>(tile_rows / blocks.num_rows, 1, kMost);
}

// int8: exact integer sums.
struct Int8Product {
    using Arguments = cpu::Int8TileArguments;
    static constexpr bool kIsByPanel = true;

    const PackedLinear& weight;
    const Int8Rows& rows;
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    Rows<const int8_t> x = rows.values;
    size_t rows_max = kernels.shape.rows;
    size_t near_rows_max = cpu::kPrefetchNearRows;
    size_t num_steps = div_up(weight.depth(), 4);
    int32_t row_sum[cpu::kTileRowsMax] = {};

    size_t panels_at_once(const RowBlocks& blocks) const {
        return panels_finished_at_once(blocks, kernels.shape.rows);
    }
    void begin_block(size_t first_row, Arguments& a) {
        for (size_t r = 0; r < a.num_rows; ++r) {
            row_sum[r] = rows.row_sum != nullptr
                             ? rows.row_sum[first_row + r]
                             : kernels.sum_int8(x.row(first_row + r), weight.depth());
        }
        a.row_sum = row_sum;
    }
    void multiply(Arguments& a, size_t /*num_panels*/) const { kernels.int8_tile(a); }
};

// int4 and fp8 in a class that expands such weights in registers.
template <typename TileArguments>
struct ExpandedProduct {
    using Arguments = TileArguments;
    static constexpr bool kIsByPanel = true;

    const PackedLinear& weight;
    Rows<const Bf16> x;
    void (*tile)(const Arguments& arguments);
    size_t rows_max;  // Of tile.
    size_t near_rows_max;
    size_t num_steps = weight.panel_bytes() / kPackedAlignment;

    size_t panels_at_once(const RowBlocks& blocks) const {
        return panels_finished_at_once(blocks, cpu::kernels(weight.numeric_class()).shape.rows);
    }
    void begin_block(size_t /*first_row*/, Arguments& a) const {
        if constexpr (std::is_same_v<Arguments, cpu::Int4TileArguments>) {
            a.group_size = int4_group_size(weight.format());
            a.has_fp16_scales = has_fp16_scales(weight.format());
        }
    }
    void multiply(Arguments& a, size_t /*num_panels*/) const { tile(a); }
};

inline ExpandedProduct<cpu::Int4TileArguments> int4_product(const PackedLinear& weight,
                                                            Rows<const Bf16> x) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    return {weight, x, kernels.int4_tile, kernels.shape.int4_rows, cpu::kInt4PrefetchNearRows};
}

inline ExpandedProduct<cpu::Fp8TileArguments> fp8_product(const PackedLinear& weight,
                                                          Rows<const Bf16> x) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    return {weight, x, kernels.fp8_tile, kernels.shape.fp8_rows, cpu::kPrefetchNearRows};
}

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
            a.prefetch_ahead = cpu::prefetch_once(num_rows, product.near_rows_max);
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

// Rows that pass a piece of a panel while it is in cache, and the depth of a piece: their sums go
// on from piece to piece.
inline constexpr size_t kPieceRows = 192;

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

// Products with bf16 panels that come piece by piece: piece(panel, k, depth, rows) gives elements
// [k, k + depth) of one, in the layout of the class, and how far ahead the first rows that meet it
// fetch.
template <typename Piece, typename Finish>
void piecewise_panels(const cpu::Kernels& kernels,
                      Rows<const Bf16> x,
                      const PackedLinear& weight,
                      size_t first_panel,
                      size_t last_panel,
                      size_t piece_depth,
                      const Piece& piece,
                      const Finish& finish) {
    alignas(64) float sums[kPieceRows * kPanelColumns];
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
        for (size_t top = 0; top < x.num_rows; top += kPieceRows) {
            const RowBlocks blocks(std::min(kPieceRows, x.num_rows - top), kernels.shape.rows);
            for (size_t k = 0; k < weight.depth(); k += piece_depth) {
                const size_t depth = std::min(piece_depth, weight.depth() - k);
                cpu::TileArguments a;
                a.panel = piece(panel, k, depth, a.prefetch_ahead);
                a.panel_elements = depth * kPanelColumns;
                a.x_stride = x.stride;
                a.depth = depth;
                a.goes_on = k > 0;
                for (size_t block = 0; block < blocks.count; ++block) {
                    a.x = x.row(top + blocks.first(block)) + k;
                    a.num_rows = blocks.rows(block);
                    a.out = &sums[blocks.first(block) * kPanelColumns];
                    kernels.tile(a);
                    a.prefetch_ahead = 0;  // In cache by now.
                }
            }
            finish_blocks(blocks, top, panel, sums, finish);
        }
    }
}

// int4 in a class with the order of bf16 for them: unpacked once for all rows.
template <typename Finish>
void unpacked_int4_panels(Rows<const Bf16> x,
                          const PackedLinear& weight,
                          size_t first_panel,
                          size_t last_panel,
                          const Finish& finish) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    const size_t group_size = int4_group_size(weight.format());
    alignas(64) uint16_t unpacked[kUnpackDepth * kPanelColumns];
    const auto unpack = [&](size_t panel, size_t k, size_t depth, size_t& prefetch_ahead) {
        kernels.unpack_int4(
            {.panel = weight.panel_data(panel) + k / group_size * int4_group_bytes(group_size),
             .group_size = group_size,
             .has_fp16_scales = has_fp16_scales(weight.format()),
             .depth = depth,
             .out = unpacked});
        prefetch_ahead = 0;  // Just written, so in cache.
        return static_cast<const uint16_t*>(unpacked);
    };
    piecewise_panels(kernels, x, weight, first_panel, last_panel, kUnpackDepth, unpack, finish);
}

// bf16. A class whose tiles ask for it meets pieces of a panel that stay in the first-level cache.
template <typename Finish>
void bf16_panels(const cpu::Kernels& kernels,
                 Rows<const Bf16> x,
                 const PackedLinear& weight,
                 size_t first_panel,
                 size_t last_panel,
                 const Finish& finish) {
    const cpu::TileShape& shape = kernels.shape;
    if (shape.depth_at_once == 0 || x.num_rows <= shape.rows) {
        return float_panels(Bf16Product{weight, x, kernels}, first_panel, last_panel, finish);
    }
    const auto piece = [&](size_t panel, size_t k, size_t, size_t& prefetch_ahead) {
        prefetch_ahead = cpu::kPrefetchFar;
        return weight.panel(panel) + k * kPanelColumns;
    };
    piecewise_panels(
        kernels, x, weight, first_panel, last_panel, shape.depth_at_once, piece, finish);
}

// fp8 where fp8_tile does not do it: a panel is unpacked some blocks at a time; every block of rows
// of up to kPieceRows meets them while they are in cache, and adds the scaled products of each to
// its sums. One block at a time reads x in bursts too short for the processor to see what follows.
template <typename Finish>
void unpacked_fp8_panels(Rows<const Bf16> x,
                         const PackedLinear& weight,
                         size_t first_panel,
                         size_t last_panel,
                         const Finish& finish) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    static_assert(kUnpackDepth % kFp8BlockEdge == 0);
    alignas(64) uint16_t unpacked[kUnpackDepth * kPanelColumns];
    alignas(64) float products[cpu::kTileFloats];
    alignas(64) float sums[kPieceRows * kPanelColumns];
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
        const std::byte* values = weight.panel_data(panel);
        const auto* scales =
            reinterpret_cast<const float*>(values + fp8_values_bytes(weight.depth()));
        for (size_t top = 0; top < x.num_rows; top += kPieceRows) {
            const RowBlocks blocks(std::min(kPieceRows, x.num_rows - top), kernels.shape.rows);
            for (size_t first = 0; first < weight.depth(); first += kUnpackDepth) {
                const size_t last = std::min(first + kUnpackDepth, weight.depth());
                kernels.unpack_fp8({.values = values + first * kPanelColumns,
                                    .depth = last - first,
                                    .out = unpacked});
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
                        a.prefetch_ahead = 0;  // Just written, so in cache.
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

// Calls finish(row, panel, sums [kPanelColumns]), or what a TileFinisher has instead, for every row
// and every panel in [first_panel, last_panel). The weights of a few panels stay in cache while the
// rows pass.
template <typename Finish>
void for_each_panel_row(const LinearInput& x,
                        const PackedLinear& weight,
                        size_t first_panel,
                        size_t last_panel,
                        const Finish& finish) {
    if (x.rows.num_rows == 0) return;
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    switch (weight.format()) {
        case WeightFormat::kBf16:
            return bf16_panels(kernels, x.rows, weight, first_panel, last_panel, finish);
        case WeightFormat::kInt8:
            AFD_ASSERT(x.int8.given(), "rows of a product with int8 weights were not quantised");
            return int8_panels(x.int8, weight, first_panel, last_panel, finish);
        case WeightFormat::kFp8Block128:
            if (x.rows.num_rows > kernels.shape.fp8_product_rows) {
                return unpacked_fp8_panels(x.rows, weight, first_panel, last_panel, finish);
            }
            return float_panels(fp8_product(weight, x.rows), first_panel, last_panel, finish);
        case WeightFormat::kInt4Group32:
        case WeightFormat::kInt4Group64:
        case WeightFormat::kInt4Group32Fp16:
        case WeightFormat::kInt4Group64Fp16:
            if (kernels.shape.int4_rows == 0) {
                return unpacked_int4_panels(x.rows, weight, first_panel, last_panel, finish);
            }
            return float_panels(int4_product(weight, x.rows), first_panel, last_panel, finish);
    }
}

// The same over all panels, in parallel where it pays. Threads share out panels, never rows: 64 to
// 96 rows at a time had 0.9 to 1.07 of the speed, different from run to run.
template <typename Finish>
void for_each_panel_row(const LinearInput& x,
                        const PackedLinear& weight,
                        Parallel& parallel,
                        const Finish& finish) {
    const size_t num_panels = weight.num_panels();
    const size_t smallest = panels_per_task(x.rows.num_rows, weight.depth());
    if (num_panels < 2 * smallest) return for_each_panel_row(x, weight, 0, num_panels, finish);
    const TaskCuts cuts(num_panels, smallest, parallel.num_threads());
    parallel.run(cuts.num_tasks(), [&](size_t task, unsigned) {
        const auto [first, last] = cuts.range(task);
        for_each_panel_row(x, weight, first, last, finish);
    });
}

}  // namespace afd::ops
