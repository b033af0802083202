// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every way to class amx that this processor has, the slowest and plainest first.

#include <vector>

#include "ops/cpu/kernels.h"
#include "tests/ops/cpu/kernel_tables.h"
#ifdef AFD_TEST_X86
#include "tests/ops/cpu/software_amx.h"
#include "tests/ops/cpu/software_products.h"
#endif

namespace afd::ops::test {

inline std::vector<KernelTable> amx_tables() {
    std::vector<KernelTable> tables = {{"amx-portable", cpu::amx_portable_kernels()}};
#ifdef AFD_TEST_X86
    const auto add = [&](bool is_supported, const char* name, auto kernels) {
        if (is_supported) tables.push_back({name, kernels()});
    };
    add(supported(NumericClass::kAvx2), "amx-avx2", cpu::amx_avx2_kernels);
    add(supported(NumericClass::kAvx512), "amx-avx512", cpu::amx_avx512_kernels);
    tables.push_back({"amx-software-products", software_product_kernels()});
    add(supported(NumericClass::kAvx512Bf16), "amx-software-tiles", software_amx_kernels);
    add(is_native(NumericClass::kAmx), "amx-tiles", cpu::amx_kernels);
#endif
    return tables;
}

}  // namespace afd::ops::test
