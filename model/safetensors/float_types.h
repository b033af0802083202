// SPDX-License-Identifier: Apache-2.0
#pragma once

// The storage types that weights are read from as bf16 or fp32.

#include <array>

#include "model/safetensors/storage_type.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"
#include "proto/check.h"

namespace afd::model {

inline constexpr std::array kFloatTypes = {
    StorageType::kBf16, StorageType::kF16, StorageType::kF32};

// Calls body(zero of the element type) for a type of kFloatTypes.
template <typename Body>
auto with_float_type(StorageType dtype, const Body& body) {
    if (dtype == StorageType::kBf16) return body(ops::Bf16{});
    if (dtype == StorageType::kF16) return body(ops::Fp16{});
    AFD_ASSERT(dtype == StorageType::kF32, "type %d", static_cast<int>(dtype));
    return body(0.0f);
}

}  // namespace afd::model
