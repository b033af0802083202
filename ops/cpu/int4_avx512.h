// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products with int4 weights for AVX-512 BF16. One vpermw makes 32 nibbles the bf16 values of q,
// whose products with bf16 are as good as any; the scale multiplies the sum of a group:
//   p = one vdpbf16ps chain over the group's x · q, from 0;  sum = fma(scale, p, sum)
// for each group in turn. That is the sum of x · (q · scale) only where q · scale is a bf16 as it
// stands, which a scale of at most five significant bits makes sure of (q has three). A column with
// another scale takes p = Σ x · ((q · scale) →bf16) and sum + p in that group, at about a third of
// the speed. Included by ops/cpu/kernels_avx512.cc only.

#include <immintrin.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/tile_avx512.h"
#include "ops/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// A panel is two halves of 16 columns, whose steps of eight elements take turns.
constexpr size_t kHalfColumns = 16;
constexpr size_t kHalfBytes = kInt4StepBytes / 2;
constexpr size_t kHalfScaleBytes = kInt4ScaleBytes / 2;
constexpr size_t kInt4Step = 8;

// bf16 of the 16 nibbles, twice: vpermw looks at five bits, and the fifth belongs to a neighbour.
inline __m512i nibble_values() {
    const __m512 q = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    return (__m512i)_mm512_cvtne2ps_pbh(q, q);
}

// What a group's scales come to, for 16 columns.
struct GroupScales {
    __m512 inside;   // Multiplies q, before rounding: 1 where the scale is short.
    __m512 outside;  // Multiplies the group's sum: 1 where it is not.
};

inline __m512 load_scales(const std::byte* scales) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline GroupScales split_scales(const std::byte* scales) {
    const __m512 scale = load_scales(scales);
    const __mmask16 is_long = _mm512_test_epi32_mask(_mm512_castps_si512(scale),
                                                     _mm512_set1_epi32(kInt4LongScaleBits << 16));
    const __m512 one = _mm512_set1_ps(1.0f);
    return {_mm512_mask_blend_ps(is_long, one, scale), _mm512_mask_blend_ps(is_long, scale, one)};
}

// Whether any of a panel's 32 columns has a long scale in the group that begins here.
inline bool has_long_scale(const std::byte* group) {
    return _mm512_test_epi16_mask(_mm512_load_si512(group),
                                  _mm512_set1_epi16(kInt4LongScaleBits)) != 0;
}

// Pairs of bf16 times the scale of their column, →bf16.
inline __m512i scaled_pairs(__m512i pairs, __m512 scale) {
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const __m512 odd = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    const auto rounded = [&](__m512 value) {
        return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(value, scale)));
    };
    return _mm512_or_si512(rounded(even), _mm512_slli_epi32(rounded(odd), 16));
}

// kRows rows x one panel.
template <size_t kRows>
struct Int4Group {
    using Sums = __m512[2][kRows];

    const std::byte* scales;
    const Bf16* x;
    size_t x_stride;
    size_t prefetch_ahead;

    // Eight elements of depth at `bytes`, of which `count` count.
    template <bool kHasLong>
    [[gnu::always_inline]] void add_step(const std::byte* bytes,
                                         const Bf16* from,
                                         size_t count,
                                         __m512i values,
                                         const GroupScales (&split)[2],
                                         Sums& products) const {
        __builtin_prefetch(bytes + prefetch_ahead, 0, 3);
        __builtin_prefetch(bytes + kHalfBytes + prefetch_ahead, 0, 3);
        const __m512i nibbles[2] = {_mm512_load_si512(bytes),
                                    _mm512_load_si512(bytes + kHalfBytes)};
        const auto add_pair = [&](unsigned pair, auto&& broadcast_x)
            __attribute__((always_inline)) {
            __m512i weights[2];
            for (size_t half = 0; half < 2; ++half) {
                weights[half] =
                    _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles[half], 4 * pair), values);
                if constexpr (kHasLong) {
                    weights[half] = scaled_pairs(weights[half], split[half].inside);
                }
            }
            for (size_t r = 0; r < kRows; ++r) {
                const __m512i value = broadcast_x(from + r * x_stride + 2 * pair);
                for (size_t half = 0; half < 2; ++half) {
                    products[half][r] = dot_pairs(products[half][r], weights[half], value);
                }
            }
        };
        if (count >= kInt4Step) {
            for (unsigned pair = 0; pair < 4; ++pair) add_pair(pair, broadcast_pair);
            return;
        }
        const auto num_pairs = static_cast<unsigned>(count / 2);
        for (unsigned pair = 0; pair < num_pairs; ++pair) add_pair(pair, broadcast_pair);
        if (count % 2 != 0) add_pair(num_pairs, broadcast_last);
    }

    template <bool kHasLong>
    [[gnu::always_inline]] void add_to(Sums& sums, size_t count) const {
        const __m512i values = nibble_values();
        Sums products;
        for (auto& of_half : products) {
            for (__m512& product : of_half) product = _mm512_setzero_ps();
        }
        GroupScales split[2];
        for (size_t half = 0; half < 2; ++half) {
            const std::byte* at = scales + half * kHalfScaleBytes;
            if constexpr (kHasLong) {
                split[half] = split_scales(at);
            } else {
                split[half].outside = load_scales(at);
            }
        }
        const std::byte* bytes = scales + kInt4ScaleBytes;
        const Bf16* from = x;
        size_t left = count;
        for (; left >= kInt4Step; left -= kInt4Step, from += kInt4Step, bytes += kInt4StepBytes) {
            add_step<kHasLong>(bytes, from, kInt4Step, values, split, products);
        }
        if (left > 0) add_step<kHasLong>(bytes, from, left, values, split, products);
        for (size_t half = 0; half < 2; ++half) {
            for (size_t r = 0; r < kRows; ++r) {
                sums[half][r] =
                    _mm512_fmadd_ps(split[half].outside, products[half][r], sums[half][r]);
            }
        }
    }
};

template <size_t kRows>
void int4_tile_of(const Int4TileArguments& a) {
    typename Int4Group<kRows>::Sums sums;
    for (auto& of_half : sums) {
        for (__m512& sum : of_half) sum = _mm512_setzero_ps();
    }
    const std::byte* group = a.panel;
    for (size_t k = 0; k < a.depth; k += a.group_size) {
        const size_t left = a.depth - k;
        const size_t count = left < a.group_size ? left : a.group_size;
        __builtin_prefetch(group + a.prefetch_ahead, 0, 3);
        const Int4Group<kRows> job{.scales = group,
                                   .x = a.x + k,
                                   .x_stride = a.x_stride,
                                   .prefetch_ahead = a.prefetch_ahead};
        if (has_long_scale(group)) {
            job.template add_to<true>(sums, count);
        } else {
            job.template add_to<false>(sums, count);
        }
        group += int4_group_bytes(count);
    }
    for (size_t half = 0; half < 2; ++half) {
        for (size_t r = 0; r < kRows; ++r) {
            _mm512_storeu_ps(a.out + r * kColumns + half * kHalfColumns, sums[half][r]);
        }
    }
}

void int4_tile(const Int4TileArguments& a) {
    static_assert(kInt4TileRows == 8);
    switch (a.num_rows) {
        case 1:
            return int4_tile_of<1>(a);
        case 2:
            return int4_tile_of<2>(a);
        case 3:
            return int4_tile_of<3>(a);
        case 4:
            return int4_tile_of<4>(a);
        case 5:
            return int4_tile_of<5>(a);
        case 6:
            return int4_tile_of<6>(a);
        case 7:
            return int4_tile_of<7>(a);
        default:
            return int4_tile_of<8>(a);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
