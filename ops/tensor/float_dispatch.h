// SPDX-License-Identifier: Apache-2.0
#pragma once

// with_float_type: from a run-time dtype to code for one floating element type.

#include "ops/tensor/fp16.h"
#include "ops/tensor/tensor_view.h"
#include "proto/check.h"

namespace afd::ops {

// Calls body(T{}) with the element type of a floating dtype. REQUIRES: kBf16, kFp16 or kFp32.
template <typename Body>
decltype(auto) with_float_type(DType dtype, Body&& body) {
    AFD_ASSERT(dtype == DType::kBf16 || dtype == DType::kFp16 || dtype == DType::kFp32,
               "dtype %d",
               static_cast<int>(dtype));
    if (dtype == DType::kBf16) return body(Bf16{});
    if (dtype == DType::kFp16) return body(Fp16{});
    return body(0.0f);
}

}  // namespace afd::ops
