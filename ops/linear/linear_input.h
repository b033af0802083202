// SPDX-License-Identifier: Apache-2.0
#pragma once

// LinearInput: the rows that a product of ops/linear/linear.h multiplies by a matrix.

#include <cstddef>
#include <span>

#include "ops/format/int8_rows.h"
#include "ops/format/w4a8_rows.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// Rows of bf16; for int8 weights, and for int4 ones that take such, the same rows quantised, or
// these alone.
struct LinearInput {
    Rows<const Bf16> rows;  // [num_rows, depth]; without data where only int8 rows were given.
    Int8Rows int8;          // Set by quantised_input.
    W4a8Rows w4a8;          // Products with int4 weights take these, if given (grouped_ffn.cc).

    LinearInput(Rows<const Bf16> bf16) : rows(bf16) {}  // Implicit: rows pass as they are.
    LinearInput(Rows<Bf16> bf16) : rows(bf16) {}
    LinearInput(const Int8Rows& quantised)
        : rows{nullptr, quantised.values.num_rows, quantised.values.num_cols, 0}, int8(quantised) {}
};

// `rows` quantised one by one, for any number of products with int8 weights of this depth.
size_t quantised_input_bytes(size_t num_rows, size_t depth);
LinearInput quantised_input(Rows<const Bf16> rows,
                            std::span<std::byte> workspace,
                            Parallel& parallel);

}  // namespace afd::ops
