// SPDX-License-Identifier: Apache-2.0

#include "tests/ops/cpu/toy_class.h"

#include "proto/check.h"

namespace afd::ops::test {
namespace {

// One column after the other; products and sums as in portable, so that the bits are the same.
void tile(const cpu::TileArguments& a) {
    AFD_ASSERT(a.num_rows <= 16 && a.num_panels * a.num_rows <= 16,
               "%zu rows, %zu panels",
               a.num_rows,
               a.num_panels);
    const size_t num_columns = a.num_panels * kPanelColumns;
    for (size_t r = 0; r < a.num_rows; ++r) {
        for (size_t column = 0; column < num_columns; ++column) {
            const uint16_t* weights =
                a.panel + column / kPanelColumns * a.panel_elements + column % kPanelColumns;
            float& sum = a.out[r * num_columns + column];
            if (!a.goes_on) sum = 0.0f;
            for (size_t k = 0; k < a.depth; ++k) {
                sum = sum + to_float(a.x[r * a.x_stride + k]) *
                                to_float(Bf16{weights[k * kPanelColumns]});
            }
        }
    }
}

}  // namespace

const cpu::Kernels& toy_kernels() {
    static const cpu::Kernels kTable = [] {
        cpu::Kernels table = cpu::portable_kernels();
        table.shape = {
            .rows = 16, .row_panels = 16, .int4_rows = 0, .w4a8_rows = table.shape.w4a8_rows};
        table.tile = tile;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::test
