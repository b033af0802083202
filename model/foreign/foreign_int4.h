// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices whose elements are 4-bit numbers with scales and zero points of groups: pack-quantized,
// GPTQ and AWQ (foreign_form.h has their layouts).

#include <cstdint>
#include <vector>

#include "model/foreign/foreign_parts.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// Rows [first, first + count), expanded: [count, K]. REQUIRES: first a multiple of 8. Errors: those
// of foreign_parts.h; kDataLoss for a group that there is not; kUnimplemented for zero points that
// config.json does not have.
Result<std::vector<ops::Bf16>> foreign_int4_rows(const ForeignMatrix& matrix,
                                                 uint64_t first,
                                                 uint64_t count);

// A matrix in int4 as it is.
struct ForeignInt4 {
    std::vector<uint8_t> nibbles;  // [N, ceil(K / 2)], even k low, two's complement
    std::vector<float> scale;      // [N, ceil(K / group)], one for each of the wanted groups
    std::vector<int8_t> zero;      // The same, -8 ... 7; empty if the form is symmetric
};

// REQUIRES: matrix.form.is_in_order; its group is 0 or a multiple of `group`. Errors: as above;
// kUnimplemented for orders of groups that config.json does not have.
Result<ForeignInt4> read_foreign_int4(const ForeignMatrix& matrix, uint64_t group);

}  // namespace afd::model
