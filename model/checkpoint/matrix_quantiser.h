// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quantisation of weight matrices (docs/specification.md, section 9).
//
//   int8  s = max|w| / 127 of each output row, q = rint(w / s), half to even; scale fp32.
//   int4  s = max|w| / 7 of each group along K, rounded up, so that no q is beyond 7: to five
//         significant bits (then q · s is exact in bf16), with fp16 scales to the next fp16;
//         q = rint(w / s).
// s = 0 (a row or group of zeros, or underflow): q = 0.

#include "model/checkpoint/stored_matrix.h"
#include "ops/format/weight_format.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::model {

// REQUIRES: `format` is int8 or int4. Errors: kDataLoss for a NaN, an infinity or a value whose
// scale is beyond fp16 (says where, if these are the rows of a matrix from `first_row` on).
Result<StoredMatrix> quantise_matrix(ops::Rows<const ops::Bf16> weight,
                                     ops::WeightFormat format,
                                     size_t first_row = 0);

}  // namespace afd::model
