// SPDX-License-Identifier: Apache-2.0

// Compiled with the flags of ops/cpu/amx/kernels_amx.cc, whose table this is on another unit.

#include "tests/ops/cpu/software_amx.h"

#include "ops/cpu/amx/attention_kernels_amx.h"
#include "ops/cpu/amx/few_rows_amx.h"
#include "ops/cpu/amx/product_kernels_amx.h"
#include "tests/ops/cpu/software_tiles.h"

namespace afd::ops::test {

const cpu::Kernels& software_amx_kernels() {
    static const cpu::Kernels kTable = [] {
        cpu::Kernels table = cpu::avx512_bf16_kernels();
        cpu::set_product_kernels<SoftwareTiles, cpu::avx512_bf16_kernels>(table);
        cpu::set_few_row_kernels<SoftwareTiles, cpu::avx512_bf16_kernels>(table);
        cpu::set_attention_kernels<SoftwareTiles>(table);
        return table;
    }();
    return kTable;
}

bool software_amx_holds_tiles() {
    return SoftwareTiles::is_configured;
}

}  // namespace afd::ops::test
