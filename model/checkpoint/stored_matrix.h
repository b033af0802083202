// SPDX-License-Identifier: Apache-2.0
#pragma once

// StoredMatrix: one weight matrix [num_outputs N, depth K] as a checkpoint holds it, in any weight
// format (ops/format/weight_format.h).
//
//   format    NAME.weight                NAME.weight_scale
//   bf16      BF16 (or F32) [N, K]       none
//   int8      I8 [N, K]                  F32 [N]; of other programs as foreign_form.h says
//   int4-g    U8 [N, ceil(K / 2)]        BF16 [N, ceil(K / g)], with -fp16 F16
//   -zero     as foreign_form.h says; in memory as int4
//   fp8-b128  F8_E4M3 [N, K]             none; NAME.weight_scale_inv (fp8_blocks.h)
//   mxfp4     as fused_experts.h says; in memory as int4, the scales in bf16
// An int4 byte holds element k even in the low nibble, k odd in the high one, two's complement.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/tensor_store.h"
#include "model/foreign/fp8_blocks.h"
#include "ops/format/weight_format.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

struct StoredMatrix {
    ops::WeightFormat format = ops::WeightFormat::kBf16;
    size_t num_outputs = 0;
    size_t depth = 0;
    std::vector<ops::Bf16> bf16 = {};       // [N, K]
    std::vector<int8_t> int8 = {};          // [N, K]
    std::vector<float> int8_scale = {};     // [N]
    std::vector<uint8_t> int4 = {};         // [N, ceil(K / 2)]; e2m1 of mxfp4, too
    std::vector<uint16_t> int4_scale = {};  // [N, ceil(K / group)], bits as the format says
    std::vector<int8_t> int4_zero = {};     // As the scales, of formats with zero points
    Fp8Blocks fp8 = {};                     // [N, K] and its scales

    bool empty() const { return num_outputs == 0; }

    // Each REQUIRES that format.
    ops::Rows<const ops::Bf16> bf16_rows() const;
    ops::Int8Weight int8_weight() const;
    ops::Int4Weight int4_weight() const;
    ops::Fp8Weight fp8_weight() const;

    ops::PackedLinear packed(ops::NumericClass numeric_class) const;

    // What the products multiply by: bf16 as stored; int8 q · scale, exact in fp32 unless tiny;
    // int4 ((q - zero) · scale) →bf16; mxfp4 e2m1 · scale, a bf16; fp8 value · scale in fp32.
    // Row-major [N, K].
    std::vector<float> values() const;
};

// The matrix of gate and up projections for swiglu(). REQUIRES: equal shapes and formats.
ops::PackedLinear packed_gate_up(const StoredMatrix& gate,
                                 const StoredMatrix& up,
                                 ops::NumericClass numeric_class);

// Reads tensor `prefix`.weight and, unless the format is bf16, its scales.
// Where the format is fp8 and the tensor is not, the message says what to do.
// Errors: those of TensorStore; kDataLoss for a scale that is not finite, or an element of mxfp4
// that no bf16 holds; in what afd-quantize writes also for a negative scale or an int4 value of -8.
// They name the tensor and the value. kUnimplemented for int4 of another program that is not what
// `format` says (foreign_int4.h).
Result<StoredMatrix> read_matrix(const TensorStore& tensors,
                                 const std::string& prefix,
                                 uint64_t num_outputs,
                                 uint64_t depth,
                                 ops::WeightFormat format);

// What `NAME.weight_scale` of an int4 matrix is stored as, and its columns for this depth.
StorageType int4_scale_type(ops::WeightFormat format);
uint64_t int4_scale_columns(uint64_t depth, ops::WeightFormat format);

}  // namespace afd::model
