// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference GroupedMatmulSwiglu: one output element at a time, products and sums in fp32 with
// k ascending (the order of numeric class portable).

#include "ops/operators/grouped_matmul_swiglu.h"
#include "ops/reference/product.h"

namespace afd::ops::reference {

// As ops::grouped_matmul_swiglu, with the same errors; the same bits with int8 and, in class
// portable, with bf16.
Result<> grouped_matmul_swiglu(const GroupedMatmulSwigluRequest& request,
                               Subnormals subnormals = Subnormals::kKept);

}  // namespace afd::ops::reference
