// SPDX-License-Identifier: Apache-2.0
#pragma once

// The AVX-512 lanes of ops/cpu/fp8_fma.h, int4_fma.h, unpack_words.h, quantised_values.h and
// key_pair_scores.h.
// Included by kernels_*.cc of classes that have them only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "ops/cpu/avx512/math_avx512.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// The sixteen values of a row from x on, or as many as are left, then zeros.
[[gnu::always_inline]] inline __m512 load_values(const Bf16* x, size_t left) {
    const __m256i half =
        left >= 16 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))
                   : _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << left) - 1), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

struct SixteenWords {
    using Floats = __m512;
    using Words = __m512i;
    static constexpr size_t kWidth = 16;
    // Eight sums, weights, values of x and constants are in registers.
    static constexpr size_t kFp8Rows = 4;
    static constexpr size_t kNibbleRows = 4;
    // All columns.
    template <size_t kRows>
    static constexpr size_t kNibbleUnits = 2;

    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
    static Floats broadcast(float value) { return _mm512_set1_ps(value); }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
    static Words load_words(const std::byte* from) { return _mm512_loadu_si512(from); }
    static Words broadcast_word(uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }
    static Floats low_half(Words words) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    }
    static Floats high_half(Words words) {
        const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
        return _mm512_castsi512_ps(_mm512_and_si512(words, mask));
    }
    // The exponent's bias grows by 120; the product also normalises subnormals. They are operands
    // that an Intel processor makes a detour for. Ways around it with the same bits cost more where
    // there are none (one row from a Zen 5's cache, its memory): the lesser of the normal number
    // and twice it less 2^-6 has 0.69 of the speed, 0.89; a permute for the eight values 0.65,
    // 0.89; a look at each line, and the permute for those that have one, 0.87, 0.87.
    template <int kByte>
    static Floats expand(Words words) {
        const __m512i top = kByte == 3 ? words : _mm512_slli_epi32(words, 24 - 8 * kByte);
        const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(top, 4),
                                              _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
        return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
    }
    template <int kBit>
    static Floats nibble(Words words) {
        const __m512 values =
            _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
        // The permute looks at the lowest four bits of a lane.
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, kBit), values);
    }
    // Looked up, since 0.5 is a subnormal one: shifted to its place as in expand() it made a row of
    // mxfp4 weights take an Intel processor 29 ms instead of 0.47.
    template <int kBit>
    static Floats e2m1(Words words) {
        const __m512 values =
            _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, kBit), values);
    }
    static constexpr bool kIsEvenAndOdd = false;
    static constexpr float kRoundedMost = std::numeric_limits<float>::infinity();
    static constexpr float kInt8Factor = 1.0f;
    static void int8_floats(const std::byte* q, Floats& a, Floats& b) {
        a = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen_bytes(q)));
        b = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen_bytes(q + 16)));
    }
    // An fp16 number's exponent has a bias that is 8 more.
    static constexpr float kE4m3Factor = 256.0f;
    static void e4m3_floats(const std::byte* q, Floats& a, Floats& b) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
        // The sign fills the upper byte: it is shifted to its place, and to one below that.
        const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7),
                                                _mm512_set1_epi16(static_cast<int16_t>(0xbf80)));
        a = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
        b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    }
    static __m128i sixteen_bytes(const std::byte* from) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    }
    static void store_rounded(Bf16* to, Floats a, Floats b) {
        const auto rounded = [](Floats x) {
            return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_number_high(x), 16));
        };
        auto* const halves = reinterpret_cast<__m256i*>(to);
        _mm256_storeu_si256(halves, rounded(a));
        _mm256_storeu_si256(halves + 1, rounded(b));
    }
    static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
    static Words bits(Floats x) { return _mm512_castps_si512(x); }
    static Floats floats(Words words) { return _mm512_castsi512_ps(words); }
    static Words round_high(Floats x) { return cpu::round_high(x); }
    static Words pair(Words even, Words odd) {
        return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(even, 16), odd);
    }
    static void store_words(uint16_t* to, Words words) { _mm512_storeu_si512(to, words); }
    static void store_row(uint16_t* to, const Words (&high)[2]) {
        for (size_t half = 0; half < 2; ++half) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + half,
                                _mm512_cvtepi32_epi16(_mm512_srli_epi32(high[half], 16)));
        }
    }
};

}  // namespace
}  // namespace afd::ops::cpu
