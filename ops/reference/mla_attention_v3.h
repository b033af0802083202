// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference MlaAttention over every cache format: plain loops, element by element.
//
// Sums run as numeric class portable has them (fp32 multiply, fp32 add, in the orders that
// ops/attention/mla_attention.h states), so the fast path of that class must give the same bits.

#include "ops/operators/mla_v3/mla_attention_v3.h"
#include "ops/reference/product.h"

namespace afd::ops::reference {

// Reads the matrices from the request. Errors: as ops::mla_attention_v3.
Result<> mla_attention_v3(const MlaAttentionV3Request& request,
                          Subnormals subnormals = Subnormals::kKept);

}  // namespace afd::ops::reference
