// SPDX-License-Identifier: Apache-2.0
#pragma once

// The multiplying loop of quantise_kernels.h for AVX-512, with the same bits. One fused
// multiply-add gives the quotient as a fixed-point number: rounding and the look for ties are then
// integer operations. Quotients close to a tie are noted without a branch and divided at the end of
// a stretch: a branch that fails now and then would stop the loop while it waits for memory.
// Results that go past the caches wait for that in a buffer.
// Included by ops/cpu/avx512/kernels_avx512.cc only.

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
// part of quotient + 0.5 modulo 256, bits 0 to 13 the fraction, which starts 1 unit late.
inline constexpr float kFixedPoint = 768.5f + 0x1p-14f;
inline constexpr int kFractionBits = 14;
// A fraction below 2 units may be a quotient on the other side of a tie: the sum is off by less
// than 1 unit.
inline constexpr int kFarFromTie = 0x3ffe;

// Bits of kMask from a, the others from b.
template <int kMask>
inline __m512i merge(__m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(kMask), a, b, 0xca);
}

// Even words first, then the odd ones.
inline __m512i even_words_first() {
    alignas(64) static constexpr uint16_t kOrder[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                        22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                                        13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    return _mm512_load_si512(kOrder);
}

class MultiplyByFixedPoint {
  public:
    template <bool kSmooth, typename T>
    static void run(
        const T* x, const float* smooth, float scale, size_t count, int8_t* q, bool is_streamed) {
        const MultiplyByFixedPoint by_inverse(1.0f / scale);
        alignas(64) int8_t buffer[kStretch];
        for (size_t i = 0; i < count; i += kStretch) {
            const size_t length = count - i < kStretch ? count - i : kStretch;
            by_inverse.run_stretch<kSmooth>(x + i,
                                            kSmooth ? smooth + i : nullptr,
                                            scale,
                                            length,
                                            x + count + i,
                                            is_streamed ? buffer : q + i);
            if (is_streamed) stream(buffer, length, q + i);
        }
    }

    // Orders what was streamed before everything that this thread stores from now on.
    static void end_streaming() { _mm_sfence(); }

  private:
    static constexpr size_t kStretch = 8192;

    explicit MultiplyByFixedPoint(float inverse) : inverses_(_mm512_set1_ps(inverse)) {}

    // At most kStretch values. Rows mostly follow each other: `next` comes from memory meanwhile.
    template <bool kSmooth, typename T>
    void run_stretch(const T* x,
                     const float* smooth,
                     float scale,
                     size_t count,
                     const T* next,
                     int8_t* q) const {
        struct {
            size_t first;
            uint64_t near;  // Bit j: the quotient of x[first + j] is close to a tie.
        } noted[kStretch / 64];
        size_t num_noted = 0;
        for (size_t i = 0; i < count; i += 64) {
            for (size_t line = 0; line < 64 * sizeof(T); line += 64) {
                _mm_prefetch(reinterpret_cast<const char*>(next + i) + line, _MM_HINT_T1);
            }
            uint64_t near;
            if constexpr (!kSmooth && std::is_same_v<T, Bf16>) {
                near = multiply(x + i, q + i);
            } else {
                near = multiply<kSmooth>(x + i, kSmooth ? smooth + i : nullptr, q + i);
            }
            noted[num_noted] = {i, near};
            num_noted += near != 0;
        }
        for (size_t n = 0; n < num_noted; ++n) {
            for (uint64_t near = noted[n].near; near != 0; near &= near - 1) {
                const size_t i = noted[n].first + static_cast<size_t>(std::countr_zero(near));
                divide_row<kSmooth>(x, smooth, scale, i, i + 1, q);
            }
        }
    }

    // Writes q of x[0, 64); returns where a quotient is close to a tie.
    template <bool kSmooth, typename T>
    uint64_t multiply(const T* x, const float* smooth, int8_t* q) const {
        uint64_t near = 0;
        for (size_t i = 0; i < 64; i += 16) {
            __m512 value = load_16(x + i);
            if constexpr (kSmooth) value = _mm512_mul_ps(value, _mm512_loadu_ps(smooth + i));
            const __m512i sums = sums_of(value);
            near |= uint64_t{_mm512_testn_epi32_mask(sums, _mm512_set1_epi32(kFarFromTie))} << i;
            _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i),
                             _mm512_cvtepi32_epi8(_mm512_srli_epi32(sums, kFractionBits)));
        }
        return near;
    }

    // The same for plain bf16. Both halves of a 32-bit lane become floats without a shuffle, and
    // four integers are shifted to the four bytes of one lane: shifts and shuffles are scarce.
    uint64_t multiply(const Bf16* x, int8_t* q) const {
        const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000));
        const __m512i pairs0 = _mm512_loadu_si512(x);
        const __m512i pairs1 = _mm512_loadu_si512(x + 32);
        const __m512i even0 = sums_of(_mm512_castsi512_ps(_mm512_slli_epi32(pairs0, 16)));
        const __m512i odd0 = sums_of(_mm512_castsi512_ps(_mm512_and_si512(pairs0, high_half)));
        const __m512i even1 = sums_of(_mm512_castsi512_ps(_mm512_slli_epi32(pairs1, 16)));
        const __m512i odd1 = sums_of(_mm512_castsi512_ps(_mm512_and_si512(pairs1, high_half)));

        // Low word of lane i: values 2i and 2i + 1; high word: 32 + 2i and 33 + 2i.
        const __m512i low = merge<0x000000ff>(_mm512_srli_epi32(even0, kFractionBits),
                                              _mm512_srli_epi32(odd0, kFractionBits - 8));
        const __m512i high = merge<0x00ff0000>(_mm512_slli_epi32(even1, 16 - kFractionBits),
                                               _mm512_slli_epi32(odd1, 24 - kFractionBits));
        _mm512_storeu_si512(
            q, _mm512_permutexvar_epi16(even_words_first(), merge<0x0000ffff>(low, high)));
        return uint64_t{near_of_pairs(even1, odd1)} << 32 | near_of_pairs(even0, odd0);
    }

    static void stream(const int8_t* buffer, size_t length, int8_t* q) {
        for (size_t i = 0; i < length; i += 64) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(q + i), _mm512_load_si512(buffer + i));
        }
    }

    __m512i sums_of(__m512 values) const {
        return _mm512_castps_si512(_mm512_fmadd_ps(values, inverses_, fixed_point_));
    }

    // Fractions need 14 bits: an even and an odd one are looked at in one lane.
    static uint32_t near_of_pairs(__m512i even, __m512i odd) {
        const __m512i words =
            _mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_slli_epi32(odd, 16));
        return _mm512_testn_epi16_mask(words, _mm512_set1_epi16(kFarFromTie));
    }

    __m512 inverses_;
    __m512 fixed_point_ = _mm512_set1_ps(kFixedPoint);
};

}  // namespace
}  // namespace afd::ops::cpu
