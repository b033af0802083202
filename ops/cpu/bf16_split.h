// SPDX-License-Identifier: Apache-2.0
#pragma once

// Floats to bf16 values by two subtractions, as T. J. Dekker splits a number: the upper 8 of its 24
// significant bits, half to even. With these lengths every number has the bits of from_float()
// (ops/tensor/bf16.h). Included by kernels_*.cc only.

namespace afd::ops::cpu {
namespace {

// Greater magnitudes might be infinite in the middle.
constexpr float kSplitMost = 0x1p111f;

// Floats whose lower halves are 0. Lanes: an instruction set's (ops/cpu/unpack_words.h).
// REQUIRES: x is below kSplitMost, no NaN and not subnormal.
template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Floats rounded_number(typename Lanes::Floats x) {
    const auto large = Lanes::multiply(x, Lanes::broadcast(65537.0f));
    return Lanes::subtract(large, Lanes::subtract(large, x));
}

}  // namespace
}  // namespace afd::ops::cpu
