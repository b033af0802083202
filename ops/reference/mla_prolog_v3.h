// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference MlaPrologV3: plain loops, element by element, over every scenario and cache mode.
//
// Sums of bf16 products run as numeric class portable has them (fp32 multiply, fp32 add, k
// ascending), so the fast path of that class must give the same bits.

#include "ops/operators/mla_v3/mla_prolog_v3.h"
#include "ops/reference/product.h"

namespace afd::ops::reference {

// Reads the matrices from the request. Errors: as ops::mla_prolog_v3.
Result<> mla_prolog_v3(const MlaPrologV3Request& request,
                       Subnormals subnormals = Subnormals::kKept);

}  // namespace afd::ops::reference
