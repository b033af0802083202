// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows x panels of one packed matrix, cut into calls of the tile kernel: blocks of rows, what they
// fetch, and one product for each weight format. Internal to ops/; for_each_panel_row() in
// panel_loop.h chooses among them.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/linear/panel_tasks.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

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

// Rows of a tile that fetch to the first-level cache.
inline size_t near_rows_of(const cpu::Kernels& kernels) {
    return std::min(kernels.shape.near_rows, cpu::block_sizes().near_rows);
}

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
    size_t near_rows_max = near_rows_of(kernels);
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
    if (blocks.count > 1) return 1;
    return std::clamp<size_t>(tile_rows / blocks.num_rows, 1, cpu::block_sizes().panels);
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
    size_t near_rows_max = near_rows_of(kernels);
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

// int4, mxfp4 and fp8 weights that a tile expands in registers, one panel a call.
template <typename TileArguments>
struct ExpandedProduct {
    using Arguments = TileArguments;
    using Element = std::remove_pointer_t<decltype(Arguments::x)>;
    static constexpr bool kIsByPanel = true;

    const PackedLinear& weight;
    Rows<Element> x;
    void (*tile)(const Arguments& arguments);
    size_t rows_max;  // Of tile.
    size_t near_rows_max;
    size_t num_steps = weight.panel_bytes() / kPackedAlignment;

    size_t panels_at_once(const RowBlocks& blocks) const {
        return panels_finished_at_once(blocks, cpu::kernels(weight.numeric_class()).shape.rows);
    }
    void begin_block(size_t /*first_row*/, Arguments& a) const {
        if constexpr (requires { a.groups; }) a.groups = int4_groups(weight.format());
        if constexpr (requires { a.is_mxfp4; }) {
            a.is_mxfp4 = weight.format() == WeightFormat::kMxfp4;
        }
    }
    void multiply(Arguments& a, size_t /*num_panels*/) const { tile(a); }
};

// int4 and mxfp4.
inline ExpandedProduct<cpu::Int4TileArguments> int4_product(const PackedLinear& weight,
                                                            Rows<const Bf16> x) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    return {weight, x, kernels.int4_tile, kernels.shape.int4_rows, cpu::kInt4NearRows};
}

// int4 weights and int8 rows; the sums lack the rows' scales.
inline ExpandedProduct<cpu::W4a8TileArguments> w4a8_product(const PackedLinear& weight,
                                                            Rows<const int8_t> x) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    return {weight, x, kernels.w4a8_tile, kernels.shape.w4a8_rows, cpu::kW4a8NearRows};
}

inline ExpandedProduct<cpu::Fp8TileArguments> fp8_product(const PackedLinear& weight,
                                                          Rows<const Bf16> x) {
    const cpu::Kernels& kernels = cpu::kernels(weight.numeric_class());
    return {weight, x, kernels.fp8_tile, kernels.shape.fp8_rows, cpu::block_sizes().near_rows};
}

}  // namespace afd::ops
