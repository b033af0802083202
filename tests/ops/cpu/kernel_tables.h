// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every table of kernels that tests of single kernels run over: those of the classes that this
// processor supports, and the toy class.

#include <string>
#include <vector>

#include "ops/cpu/kernels.h"
#include "tests/ops/cpu/toy_class.h"

namespace afd::ops::test {

struct KernelTable {
    std::string name;
    const cpu::Kernels& kernels;
};

inline std::vector<KernelTable> every_kernel_table() {
    std::vector<KernelTable> tables;
    for (const NumericClass numeric_class : supported_numeric_classes()) {
        tables.push_back({std::string(name_of(numeric_class)), cpu::kernels(numeric_class)});
    }
    tables.push_back({"toy", toy_kernels()});
    return tables;
}

}  // namespace afd::ops::test
