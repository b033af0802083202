// SPDX-License-Identifier: Apache-2.0

#include "tests/ops/cpu/software_products.h"

#include "ops/cpu/amx/product_kernels_amx.h"
#include "tests/ops/cpu/software_tiles.h"

namespace afd::ops::test {

const cpu::Kernels& software_product_kernels() {
    static const cpu::Kernels kTable = [] {
        cpu::Kernels table = cpu::amx_portable_kernels();
        cpu::set_product_kernels<SoftwareTiles, cpu::amx_portable_kernels>(table);
        return table;
    }();
    return kTable;
}

bool software_products_hold_tiles() {
    return SoftwareTiles::is_configured;
}

}  // namespace afd::ops::test
