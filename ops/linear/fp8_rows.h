// SPDX-License-Identifier: Apache-2.0
#pragma once

// bf16 rows to fp8 rows and back, by the formulas of ops/format/fp8_layout.h.

#include <cstddef>

#include "ops/format/fp8_layout.h"
#include "ops/tensor/bf16.h"

namespace afd::ops {

// x [count], row [fp8_row_bytes(count)], at any address.
void encode_fp8_row(const Bf16* x, size_t count, std::byte* row);

// What a row that was encoded expands to: y = expand(encode(x)). y may be x.
void round_row_to_fp8(const Bf16* x, size_t count, Bf16* y);

// Takes every pattern of bytes; a value that is no number (0x7f) is taken for 480.
void expand_fp8_row(const std::byte* row, size_t count, Bf16* x);

}  // namespace afd::ops
