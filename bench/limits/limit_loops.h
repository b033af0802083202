// SPDX-License-Identifier: Apache-2.0
#pragma once

// The innermost loops of the limits, by what the processor has: the widest registers, and the
// instructions that do most products a clock, those of AMX before all others. A processor without
// bf16 or int8 products is measured with what software does there: fp32 multiply-adds, without the
// widening of bf16 that a kernel pays besides, and pairs of products widened twice (vpmaddubsw,
// vpmaddwd) and added.

#include <cstddef>

#include "ops/format/numeric_class.h"

namespace afd::bench {

struct LimitLoops {
    // Reads `bytes`, a multiple of 256, from an address aligned to 64.
    void (*read)(const std::byte* data, size_t bytes);
    // `steps` rounds of independent sums in registers; null where the loop is not written.
    void (*bf16)(size_t steps);
    void (*int8)(size_t steps);
    // Operations of a round, two a product.
    double bf16_operations;
    double int8_operations;
};

// The fastest that this processor can run.
const LimitLoops& limit_loops();

// The same, but the products of bf16 are by the instructions that the class is made for, also where
// this processor has faster ones: of portable, multiplications and additions of SSE2. Of a class
// that is not native, the fastest.
LimitLoops limit_loops_of(ops::NumericClass numeric_class);

}  // namespace afd::bench
