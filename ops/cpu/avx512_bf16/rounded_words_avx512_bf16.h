// SPDX-License-Identifier: Apache-2.0
#pragma once

// The lanes of ops/cpu/quantised_values.h with the instruction that rounds to bf16. Included by
// ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.

#include <immintrin.h>

#include "ops/cpu/avx512/words_avx512.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

struct RoundedWords : SixteenWords {
    // a and then b. The instruction makes zeros of subnormals.
    static __m512i rounded(Floats a, Floats b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }
    static void store_rounded(Bf16* to, Floats a, Floats b) {
        _mm512_storeu_si512(to, rounded(a, b));
    }
};

}  // namespace
}  // namespace afd::ops::cpu
