// SPDX-License-Identifier: Apache-2.0
#pragma once

// The AVX2 lanes of ops/cpu/fp8_fma.h, int4_fma.h, unpack_words.h, quantised_values.h and
// key_pair_scores.h, and what the tiles of AVX2 share.
// Included by kernels_*.cc of classes that have them only.

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/bf16_split.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

struct EightWords {
    using Floats = __m256;
    using Words = __m256i;
    static constexpr size_t kWidth = 8;
    // Eight sums, weights, values of x and constants are in registers.
    static constexpr size_t kFp8Rows = 2;
    static constexpr size_t kNibbleRows = 4;
    template <size_t kRows>
    static constexpr size_t kNibbleUnits = kRows <= 2 ? 4 : 2;

    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
    static Floats broadcast(float value) { return _mm256_set1_ps(value); }
    // The instruction overwrites the sum. g++ would choose the form that overwrites a factor, or
    // add in another order, and store what then has no place among the 16 registers.
    static Floats fused(Floats a, Floats b, Floats sum) {
        asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
        return sum;
    }
    static Words added(Words x, Words sum) {
        asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(x));
        return sum;
    }
    static Words load_words(const std::byte* from) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    static Words broadcast_word(uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }
    static Floats low_half(Words words) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    }
    static Floats high_half(Words words) {
        const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
        return _mm256_castsi256_ps(_mm256_and_si256(words, mask));
    }
    // The exponent's bias grows by 120; the product also normalises subnormals.
    template <int kByte>
    static Floats expand(Words words) {
        const __m256i top = kByte == 3 ? words : _mm256_slli_epi32(words, 24 - 8 * kByte);
        const __m256i bits = _mm256_and_si256(_mm256_srai_epi32(top, 4),
                                              _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
        return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
    }
    template <int kBit>
    static Floats nibble(Words words) {
        const Words top = _mm256_slli_epi32(words, 28 - kBit);
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
    }
    // Looked up, since 0.5 is subnormal: ops/cpu/avx512/words_avx512.h.
    template <int kBit>
    static Floats e2m1(Words words) {
        const Floats magnitudes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
        // The permute looks at the lowest three bits of a lane.
        const Floats magnitude =
            _mm256_permutevar8x32_ps(magnitudes, _mm256_srli_epi32(words, kBit));
        const Floats sign =
            _mm256_and_ps(floats(_mm256_slli_epi32(words, 28 - kBit)), _mm256_set1_ps(-0.0f));
        return _mm256_or_ps(magnitude, sign);
    }
    // quantised_values.h: the first of two registers has the even elements.
    static constexpr bool kIsEvenAndOdd = true;
    static constexpr float kRoundedMost = kSplitMost;
    // Bytes are the highest ones of words.
    static constexpr float kInt8Factor = 0x1p-24f;
    template <bool kIsOdd>
    static Floats int8_half(const std::byte* q) {
        return _mm256_cvtepi32_ps(
            _mm256_shuffle_epi8(sixteen_bytes_twice(q), places<4, 0 + kIsOdd, 8 + kIsOdd>()));
    }
    static void int8_floats(const std::byte* q, Floats& even, Floats& odd) {
        even = int8_half<false>(q);
        odd = int8_half<true>(q);
    }
    // An fp16 number's exponent has a bias that is 8 more. With subnormal floats the product would
    // take a Zen 3 twice the time.
    static constexpr float kE4m3Factor = 256.0f;
    static void e4m3_floats(const std::byte* q, Floats& even, Floats& odd) {
        const Words bytes = _mm256_shuffle_epi8(sixteen_bytes_twice(q), places<2, 0, 1>());
        const Words halves = _mm256_and_si256(_mm256_srai_epi16(bytes, 1),
                                              _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
        even = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
        odd = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    }
    template <bool kIsOdd>
    static Floats e4m3_half(const std::byte* q) {
        const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
        const __m128i top = kIsOdd ? all : _mm_slli_epi16(all, 8);
        const __m128i halves =
            _mm_and_si128(_mm_srai_epi16(top, 1), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
        return _mm256_cvtph_ps(halves);
    }
    static Words sixteen_bytes_twice(const std::byte* from) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    // For a shuffle: bytes kLow, kLow + 2 ... as the highest ones of numbers of kBytes in the lower
    // lane, those from kHigh on in the upper one; the others are 0.
    template <int kBytes, int kLow, int kHigh>
    [[gnu::always_inline]] static Words places() {
        alignas(32) static constexpr std::array<int8_t, 32> kPlaces = [] {
            std::array<int8_t, 32> places{};
            for (int i = 0; i < 32; ++i) {
                const int place = (i < 16 ? kLow : kHigh) + i % 16 / kBytes * 2;
                const bool is_highest = i % kBytes == kBytes - 1;
                places[i] = static_cast<int8_t>(is_highest ? place : -1);
            }
            return places;
        }();
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(kPlaces.data()));
    }
    static void store_rounded(Bf16* to, Floats even, Floats odd) {
        const Words words =
            pair(bits(rounded_number<EightWords>(even)), bits(rounded_number<EightWords>(odd)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
    }
    static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
    static Words bits(Floats x) { return _mm256_castps_si256(x); }
    static Floats floats(Words words) { return _mm256_castsi256_ps(words); }
    // from_float() of ops/tensor/bf16.h, of what is no NaN.
    static Words round_number_high(Floats x) {
        const Words raw = bits(x);
        const Words lowest = _mm256_and_si256(_mm256_srli_epi32(raw, 16), _mm256_set1_epi32(1));
        return _mm256_add_epi32(_mm256_add_epi32(raw, _mm256_set1_epi32(0x7fff)), lowest);
    }
    static Words round_high(Floats x) {
        const Words quiet = _mm256_or_si256(bits(x), _mm256_set1_epi32(0x400000));
        const Floats is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
        return _mm256_blendv_epi8(round_number_high(x), quiet, _mm256_castps_si256(is_nan));
    }
    static Words pair(Words even, Words odd) {
        return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
    }
    static void store_words(uint16_t* to, Words words) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
    }
    static void store_row(uint16_t* to, const Words (&high)[4]) {
        for (size_t half = 0; half < 2; ++half) {
            // The pack interleaves lanes of 128 bits, the permutation puts them back.
            const Words mixed = _mm256_packus_epi32(_mm256_srli_epi32(high[2 * half], 16),
                                                    _mm256_srli_epi32(high[2 * half + 1], 16));
            store_words(to + half * kPanelColumns / 2, _mm256_permute4x64_epi64(mixed, 0xd8));
        }
    }
};

}  // namespace
}  // namespace afd::ops::cpu
