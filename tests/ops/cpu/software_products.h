// SPDX-License-Identifier: Apache-2.0
#pragma once

// Class amx whose products are those of ops/cpu/amx/ on the tile registers in software; its other
// kernels are the portable ones. It runs on every processor, where software_amx.h wants AVX-512.

#include "ops/cpu/kernels.h"

namespace afd::ops::test {

const cpu::Kernels& software_product_kernels();

// Whether one of them has left this thread's tiles configured.
bool software_products_hold_tiles();

}  // namespace afd::ops::test
