// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference linear layers: y[i, n] = Σ_k x[i, k] · W[n, k].

#include <cstdint>
#include <span>

#include "ops/format/weight_format.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// W [N, K] as a checkpoint holds it: bf16, int8 with a scale per output, or fp8 with one per block;
// int4 where its rows are to be int8 (ops/format/int4_rows.h). Where they are not, an int4 matrix
// is one of bf16: dequantise it first.
struct LinearWeight {
    Rows<const Bf16> bf16;
    Int8Weight int8;  // Used instead where it has rows, as are the next two.
    Int4Weight int4;
    Fp8Weight fp8;

    LinearWeight() = default;
    LinearWeight(Rows<const Bf16> rows) : bf16(rows) {}  // Implicit: both pass as they are.
    LinearWeight(const Int8Weight& weight) : int8(weight) {}
    LinearWeight(const Int4Weight& weight) : int4(weight) {}
    LinearWeight(const Fp8Weight& weight) : fp8(weight) {}

    bool is_int8() const { return int8.num_outputs() > 0; }
    bool is_int4() const { return int4.num_outputs() > 0; }
    bool is_fp8() const { return fp8.num_outputs() > 0; }
    bool empty() const { return bf16.num_rows == 0 && !is_int8() && !is_int4() && !is_fp8(); }
};

// Shapes: x [T, K], weight [N, K]; y [T, N], a rounding point. With int8 weights and kBf16 each row
// of x is quantised first (docs/specification.md, section 9) and y = float(Σ q·q) · row scale ·
// scale[n] in fp32, in that order; int4 weights as ops/format/int4_rows.h says. With kNone x stays
// as it is. fp8 weights are value · scale, unrounded, in both. A bias [N] is added before the
// rounding point.
Matrix linear(const Matrix& x,
              const LinearWeight& weight,
              Rounding rounding,
              std::span<const Bf16> bias = {});

// One row that was quantised before, y [1, N] with the rounding point of kBf16.
Matrix linear(std::span<const int8_t> x,
              float x_scale,
              const Int8Weight& weight,
              std::span<const Bf16> bias = {});

// Without the rounding point (router logits, head).
Matrix linear_f32(const Matrix& x, Rows<const Bf16> weight);

}  // namespace afd::ops::reference
