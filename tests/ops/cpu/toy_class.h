// SPDX-License-Identifier: Apache-2.0
#pragma once

// The toy class: an example of docs/adding/kernel_class.md. The arithmetic of portable with a tile
// of its own shape, sixteen rows, as a matrix unit would have it.

#include "ops/cpu/kernels.h"

namespace afd::ops::test {

const cpu::Kernels& toy_kernels();

}  // namespace afd::ops::test
