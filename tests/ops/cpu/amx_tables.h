// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every way to class amx that this processor has.

#include <vector>

#include "ops/cpu/kernels.h"
#include "tests/ops/cpu/kernel_tables.h"
#ifdef AFD_TEST_X86
#include "tests/ops/cpu/software_amx.h"
#include "tests/ops/cpu/software_products.h"
#endif

namespace afd::ops::test {

// With ordinary multiply-adds, the slowest and plainest first.
inline std::vector<KernelTable> emulated_amx_tables() {
    std::vector<KernelTable> tables = {{"amx-portable", cpu::amx_portable_kernels()}};
#ifdef AFD_TEST_X86
    if (supported(NumericClass::kAvx2)) tables.push_back({"amx-avx2", cpu::amx_avx2_kernels()});
    if (supported(NumericClass::kAvx512)) {
        tables.push_back({"amx-avx512", cpu::amx_avx512_kernels()});
    }
#endif
    return tables;
}

// The kernels of AMX: on tiles in software, and on those of the processor where it has them.
inline std::vector<KernelTable> tile_amx_tables() {
    std::vector<KernelTable> tables;
#ifdef AFD_TEST_X86
    tables.push_back({"amx-software-products", software_product_kernels()});
    if (supported(NumericClass::kAvx512Bf16)) {
        tables.push_back({"amx-software-tiles", software_amx_kernels()});
    }
    if (is_native(NumericClass::kAmx)) tables.push_back({"amx-tiles", cpu::amx_kernels()});
#endif
    return tables;
}

inline std::vector<KernelTable> amx_tables() {
    std::vector<KernelTable> tables = emulated_amx_tables();
    for (const KernelTable& table : tile_amx_tables()) tables.push_back(table);
    return tables;
}

// Whether a kernel has left this thread's tiles in software configured.
inline bool holds_software_tiles() {
#ifdef AFD_TEST_X86
    return software_products_hold_tiles() ||
           (supported(NumericClass::kAvx512Bf16) && software_amx_holds_tiles());
#else
    return false;
#endif
}

}  // namespace afd::ops::test
