// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices of 8-bit integers with a scale for each row: int-quantized of compressed-tensors
// (foreign_form.h has the layout). Values are -128 to 127, scales may be negative.

#include <cstdint>
#include <vector>

#include "model/foreign/foreign_parts.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

struct ForeignInt8 {
    std::vector<int8_t> values;  // [rows, K]
    std::vector<float> scale;    // [rows]
};

// Rows [first, first + count) as they are. Errors: those of foreign_parts.h; kUnimplemented for
// scales of another shape, or zero points.
Result<ForeignInt8> read_foreign_int8(const ForeignMatrix& matrix, uint64_t first, uint64_t count);

// The same, expanded: [count, K]. Errors: as above; kDataLoss for an element that is infinite as
// bf16.
Result<std::vector<ops::Bf16>> foreign_int8_rows(const ForeignMatrix& matrix,
                                                 uint64_t first,
                                                 uint64_t count);

}  // namespace afd::model
