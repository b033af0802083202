// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows x panels of one packed matrix, shared by linear, grouped_ffn and attention: the way for its
// weight format, on the threads that it is worth. Internal to ops/.

#include <cstddef>

#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/linear/panel_passes.h"
#include "ops/linear/panel_tasks.h"
#include "ops/linear/piece_passes.h"
#include "ops/linear/tile_products.h"
#include "ops/tensor/item_shares.h"
#include "proto/check.h"

namespace afd::ops {

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
    if (x.w4a8.given() && is_int4(weight.format())) {
        return w4a8_panels(x.w4a8, weight, first_panel, last_panel, finish);
    }
    if (x.rows.num_rows > kernels.shape.whole_panel_rows(weight.format())) {
        return piece_panels({kernels, weight, first_panel, last_panel}, x, finish);
    }
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
        case WeightFormat::kMxfp4:
        case WeightFormat::kInt4Group32Zero:
        case WeightFormat::kInt4Group64Zero:
        case WeightFormat::kInt4Group32Fp16Zero:
        case WeightFormat::kInt4Group64Fp16Zero:
            if (x.rows.num_rows > kernels.shape.nibble_product_rows(weight.format())) {
                return unpacked_nibble_panels(x.rows, weight, first_panel, last_panel, finish);
            }
            if (pays_to_unpack_groups(kernels, x.rows, weight, first_panel)) {
                return unpacked_group_panels(x.rows, weight, first_panel, last_panel, finish);
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
    run_shares(
        parallel,
        weight.num_panels(),
        panels_per_task(x.rows.num_rows, weight.depth()),
        [&](size_t first, size_t last) { for_each_panel_row(x, weight, first, last, finish); });
}

}  // namespace afd::ops
