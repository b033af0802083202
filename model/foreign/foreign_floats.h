// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices whose elements are small floats with scales: fp8 of compressed-tensors and mxfp4
// (foreign_form.h has their layouts). Both expand rows [first, first + count) of a matrix to
// [count, K]. Errors: those of foreign_parts.h; kDataLoss for an element that is no number
// or infinite as bf16; kUnimplemented for scales of another shape.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/foreign/foreign_parts.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// REQUIRES: first a multiple of 128.
Result<std::vector<ops::Bf16>> foreign_fp8_rows(const ForeignMatrix& matrix,
                                                uint64_t first,
                                                uint64_t count);

Result<std::vector<ops::Bf16>> foreign_mxfp4_rows(const ForeignMatrix& matrix,
                                                  uint64_t first,
                                                  uint64_t count);

inline constexpr uint64_t kMxfp4Group = 32;

// Rows of mxfp4 in memory: bytes [rows, ceil(depth / 2)], exponents [rows, ceil(depth / 32)]; the
// first is row `first` of tensor `name`.
Result<std::vector<ops::Bf16>> mxfp4_values(std::string_view name,
                                            std::span<const uint8_t> bytes,
                                            std::span<const uint8_t> exponents,
                                            uint64_t depth,
                                            uint64_t first);

}  // namespace afd::model
