// SPDX-License-Identifier: Apache-2.0
#pragma once

// The multiplying loop of quantise_kernels.h for AVX-512, with the same bits. One fused
// multiply-add gives the quotient as a fixed-point number: rounding and the look for ties are then
// integer operations. Included by ops/cpu/kernels_avx512.cc only.

#include <immintrin.h>

#include "ops/cpu/quantise_kernels.h"

namespace afd::ops::cpu {
namespace {

inline __m512 load_16(const float* x) {
    return _mm512_loadu_ps(x);
}

inline __m512 load_16(const Bf16* x) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline __m512 load_16(const Fp16* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}

// Sums with it stand in [512, 1024), where the spacing is 2^-14: bits 14 to 21 are then the integer
// part of quotient + 0.5 modulo 256, bits 0 to 13 the fraction, which starts 2 units late.
inline constexpr float kFixedPoint = 768.5f + 0x1p-13f;
inline constexpr int kFractionBits = 14;
// Fractions below 4 units mean a quotient within 2 of a tie; the sum is off by less than 1.
inline constexpr int kFarFromTie = 0x3ffc;

inline void store_16(int8_t* q, __m512i integers) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(integers));
}

struct MultiplyByFixedPoint {
    template <bool kSmooth, typename T>
    static __m512 load(const T* x, const float* smooth, size_t i) {
        const __m512 value = load_16(x + i);
        if constexpr (!kSmooth) return value;
        return _mm512_mul_ps(value, _mm512_loadu_ps(smooth + i));
    }

    template <bool kSmooth, typename T>
    static void run(
        const T* x, const float* smooth, float scale, float inverse, size_t count, int8_t* q) {
        const __m512 inverses = _mm512_set1_ps(inverse);
        const __m512 fixed_point = _mm512_set1_ps(kFixedPoint);
        const __m512i far_from_tie = _mm512_set1_epi32(kFarFromTie);
        for (size_t i = 0; i < count; i += 64) {
            // Rows mostly follow each other: the next comes from memory while this is computed.
            for (size_t line = 0; line < 64 * sizeof(T); line += 64) {
                _mm_prefetch(reinterpret_cast<const char*>(x + count + i) + line, _MM_HINT_T1);
            }
            unsigned is_near = 0;
            for (size_t j = i; j < i + 64; j += 16) {
                const __m512i sums = _mm512_castps_si512(
                    _mm512_fmadd_ps(load<kSmooth>(x, smooth, j), inverses, fixed_point));
                is_near |= _mm512_testn_epi32_mask(sums, far_from_tie);
                store_16(q + j, _mm512_srli_epi32(sums, kFractionBits));
            }
            if (is_near != 0) divide<kSmooth>(x, smooth, scale, i, q);
        }
    }

    // 64 values again, with the division.
    template <bool kSmooth, typename T>
    [[gnu::noinline]] static void divide(
        const T* x, const float* smooth, float scale, size_t i, int8_t* q) {
        for (size_t j = i; j < i + 64; j += 16) {
            const __m512 quotient =
                _mm512_div_ps(load<kSmooth>(x, smooth, j), _mm512_set1_ps(scale));
            store_16(q + j, _mm512_castps_si512(_mm512_add_ps(quotient, _mm512_set1_ps(kRounder))));
        }
    }
};

}  // namespace
}  // namespace afd::ops::cpu
