// SPDX-License-Identifier: Apache-2.0

// Compiled with the flags of ops/cpu/amx/kernels_amx.cc, whose headers it includes.

#include "tests/ops/cpu/software_amx.h"

#include "ops/cpu/amx/attend_spans_amx.h"
#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/amx/int8_amx.h"
#include "ops/cpu/amx/piece_product_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "tests/ops/cpu/software_tiles.h"

namespace afd::ops::test {

const cpu::Kernels& software_amx_kernels() {
    static const cpu::Kernels kTable = [] {
        cpu::Kernels table = cpu::amx_kernels();
        table.tile = cpu::amx_tile<SoftwareTiles>;
        table.bf16_pieces = cpu::amx_pieces<SoftwareTiles, cpu::AddBf16{}>;
        table.int8_pieces = cpu::amx_pieces<SoftwareTiles, cpu::AddBytes{}>;
        table.int8_tile = cpu::amx_int8_tile<SoftwareTiles>;
        table.begin_heads = cpu::begin_amx_heads;
        table.attend_block = cpu::attend_amx_block<SoftwareTiles>;
        table.attend_spans = cpu::attend_amx_spans<SoftwareTiles>;
        table.finish_heads = cpu::finish_amx_heads;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::test
