// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quotients of many values by one, with the bits of divisions, by multiplications. Included by
// kernels_avx512_bf16.cc and kernels_amx.cc only.

#include <immintrin.h>

namespace afd::ops::cpu {
namespace {

class Divisor {
  public:
    explicit Divisor(float value)
        : value_(_mm512_set1_ps(value)),
          reciprocal_(_mm512_set1_ps(1.0f / value)),
          is_moderate_(moderate(value_) != 0) {}

    // The first correction gives one of the two floats around the quotient; from one of those and
    // the correctly rounded reciprocal the second gives the nearest (Markstein, IBM J. Res. Dev.
    // 34(1), 1990), if nothing underflows. What could, zeros among it, is divided.
    __m512 divide(__m512 x) const {
        if (!is_moderate_ || moderate(x) != kAllLanes) return _mm512_div_ps(x, value_);
        __m512 quotient = _mm512_mul_ps(x, reciprocal_);
        quotient = corrected(x, quotient);
        return corrected(x, quotient);
    }

  private:
    static constexpr __mmask16 kAllLanes = 0xffff;

    static __mmask16 moderate(__m512 x) {
        const __m512 size = _mm512_abs_ps(x);
        const __mmask16 is_large = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-60f), _CMP_GE_OQ);
        return _mm512_mask_cmp_ps_mask(is_large, size, _mm512_set1_ps(0x1p60f), _CMP_LE_OQ);
    }

    __m512 corrected(__m512 x, __m512 quotient) const {
        const __m512 rest = _mm512_fnmadd_ps(quotient, value_, x);
        return _mm512_fmadd_ps(rest, reciprocal_, quotient);
    }

    __m512 value_;
    __m512 reciprocal_;
    bool is_moderate_;
};

}  // namespace
}  // namespace afd::ops::cpu
