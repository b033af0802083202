// SPDX-License-Identifier: Apache-2.0
#pragma once

// int4 panels to bf16 ones on 16 lanes, with the bits of ops/cpu/unpack_words.h. Included by
// ops/cpu/avx512/kernels_avx512.cc only.
//
// A lane permute looks up the float of a nibble, for the even columns of a panel and the odd ones
// apart, so that their products with the scales are the two halves of a word of the bf16 panel.
// With a scale of at most five significant bits such a product is a bf16 as it stands; only a group
// that has a longer one pays for rounding.

#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/avx512/tile_avx512.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/unpack_words.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// The scales of a group, or its zero points, as they lie and as floats of the even and the odd
// columns.
struct Int4Line {
    __m512i bits;
    __m512 even;
    __m512 odd;

    Int4Line(const std::byte* line, bool is_fp16) : bits(_mm512_loadu_si512(line)) {
        if (!is_fp16) {
            even = SixteenWords::low_half(bits);
            odd = SixteenWords::high_half(bits);
            return;
        }
        const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
        const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
        even = _mm512_permutex2var_ps(low, even_columns(), high);
        odd = _mm512_permutex2var_ps(low, odd_columns(), high);
    }

    bool are_ordinary() const {
        alignas(64) float scales[kPanelColumns];
        _mm512_store_ps(scales, even);
        _mm512_store_ps(scales + 16, odd);
        return cpu::are_ordinary(scales);
    }

    bool has_long(bool is_fp16) const {
        const int long_bits = is_fp16 ? kInt4LongFp16Bits : kInt4LongBf16Bits;
        return _mm512_test_epi16_mask(bits, _mm512_set1_epi16(static_cast<short>(long_bits))) != 0;
    }
};

// `count` elements of depth of one group, whose first step is at `step`. zeros: for kFromZero.
template <Nibble kNibble, Products kProducts>
void unpack_group(const std::byte* step,
                  const Int4Line& scales,
                  const Int4Line& zeros,
                  size_t count,
                  size_t fetch_ahead,
                  uint16_t* out) {
    const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    // The permute looks at the lowest four bits of a lane.
    const auto scaled = [&](__m512i words, unsigned shift, __m512 scale, __m512 zero)
        __attribute__((always_inline)) {
        __m512 value = _mm512_permutexvar_ps(_mm512_srli_epi32(words, shift), values);
        if constexpr (kNibble == Nibble::kFromZero) value = _mm512_sub_ps(value, zero);
        const __m512 product = _mm512_mul_ps(value, scale);
        if constexpr (kProducts == Products::kRounded) return round_high(product);
        return _mm512_castps_si512(
            kProducts == Products::kExact ? product : rounded_number<SixteenWords>(product));
    };
    for (size_t k = 0; k < count; k += 8, step += kInt4StepBytes) {
        __builtin_prefetch(step + fetch_ahead, 0, 3);
        __builtin_prefetch(step + fetch_ahead + 64, 0, 3);
        const __m512i low = _mm512_loadu_si512(step);
        const __m512i high = _mm512_loadu_si512(step + kInt4StepBytes / 2);
        const __m512i even = _mm512_permutex2var_epi32(low, even_columns(), high);
        const __m512i odd = _mm512_permutex2var_epi32(low, odd_columns(), high);
        const size_t left = count - k;
        unrolled<8>([&](size_t e) __attribute__((always_inline)) {
            if (e >= left) return;
            const auto shift = static_cast<unsigned>(4 * (e / 2) + 16 * (e % 2));
            SixteenWords::store_words(
                out + (k + e) * kPanelColumns,
                SixteenWords::pair(scaled(even, shift, scales.even, zeros.even),
                                   scaled(odd, shift, scales.odd, zeros.odd)));
        });
    }
}

void unpack_int4_avx512(const UnpackArguments& a) {
    const std::byte* group = a.panel;
    const bool is_fp16 = a.groups.has_fp16_scales;
    for (size_t first = 0; first < a.depth; first += a.groups.size) {
        const size_t count = std::min(a.groups.size, a.depth - first);
        const Int4Line scales(group, is_fp16);
        const std::byte* step = group + a.groups.head_bytes();
        uint16_t* out = a.out + first * kPanelColumns;
        if (a.groups.has_zeros) {
            const Int4Line zeros(group + kInt4ScaleBytes, false);
            const auto unpack = scales.are_ordinary()
                                    ? unpack_group<Nibble::kFromZero, Products::kOrdinary>
                                    : unpack_group<Nibble::kFromZero, Products::kRounded>;
            unpack(step, scales, zeros, count, a.fetch_ahead, out);
        } else {
            const auto unpack =
                !scales.has_long(is_fp16) ? unpack_group<Nibble::kInt4, Products::kExact>
                : scales.are_ordinary()   ? unpack_group<Nibble::kInt4, Products::kOrdinary>
                                          : unpack_group<Nibble::kInt4, Products::kRounded>;
            unpack(step, scales, scales, count, a.fetch_ahead, out);
        }
        group += a.groups.bytes(count);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
