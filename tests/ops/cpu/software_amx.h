// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of AMX on tile registers in software.

#include "ops/cpu/kernels.h"

namespace afd::ops::test {

// REQUIRES: supported(NumericClass::kAvx512Bf16), which these kernels use as well.
const cpu::Kernels& software_amx_kernels();

// Whether one of them has left this thread's tiles configured.
bool software_amx_holds_tiles();

}  // namespace afd::ops::test
