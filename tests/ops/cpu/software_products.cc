// SPDX-License-Identifier: Apache-2.0

#include "tests/ops/cpu/software_products.h"

#include "ops/cpu/amx/int8_amx.h"
#include "ops/cpu/amx/piece_product_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "tests/ops/cpu/software_tiles.h"

namespace afd::ops::test {

const cpu::Kernels& software_product_kernels() {
    static const cpu::Kernels kTable = [] {
        cpu::Kernels table = cpu::amx_portable_kernels();
        table.shape.rows = table.shape.row_panels = cpu::kAmxRows;
        table.tile = cpu::amx_tile<SoftwareTiles>;
        table.bf16_pieces = cpu::amx_pieces<SoftwareTiles, cpu::AddBf16{}>;
        table.int8_pieces = cpu::amx_pieces<SoftwareTiles, cpu::AddBytes{}>;
        table.int8_tile = cpu::amx_int8_tile<SoftwareTiles>;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::test
