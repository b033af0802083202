// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of int8 rows with int4 weights for AVX-512 VNNI. The low nibbles of 64 bytes of a panel
// are four elements of 16 columns, and so are the high ones; plus 8 they are the unsigned bytes
// that vpdpbusd wants, and the rows' sums take that back (ops/format/w4a8_rows.h), and the
// weights' zero points with it. Included by
// ops/cpu/avx512/kernels_avx512_vnni.cc only.

#include <immintrin.h>

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/nibble_lines.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kW4a8TileRows = 12;
constexpr size_t kW4a8Step = 8;
constexpr size_t kW4a8HalfColumns = 16;

inline __m512 w4a8_scales(const std::byte* scales, bool is_fp16) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    if (is_fp16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline __m512i broadcast_four(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

// Eight elements of depth of both halves of the columns.
struct W4a8Weights {
    __m512i low[2];   // Elements 0, 4, 1, 5, plus 8
    __m512i high[2];  // and 2, 6, 3, 7.

    explicit W4a8Weights(const std::byte* bytes) {
        const __m512i nibbles = _mm512_set1_epi8(0x0f);
        for (size_t half = 0; half < 2; ++half) {
            const __m512i q = _mm512_xor_si512(_mm512_load_si512(bytes + half * kLineBytes),
                                               _mm512_set1_epi8(static_cast<char>(0x88)));
            low[half] = _mm512_and_si512(q, nibbles);
            high[half] = _mm512_and_si512(_mm512_srli_epi16(q, 4), nibbles);
        }
    }
};

// Sums keep one element type from begin to end, as in int8_vnni.h.
using W4a8Sums = int32_t __attribute__((vector_size(64)));

inline W4a8Sums add_fours(W4a8Sums sums, __m512i weights, __m512i x) {
    return (W4a8Sums)_mm512_dpbusd_epi32((__m512i)sums, weights, x);
}

// 8 + zero of one half of the columns.
inline __m512i w4a8_zero_factor(const std::byte* group, size_t half) {
    const __m512 zeros = w4a8_scales(group + kInt4ScaleBytes + half * (kInt4ScaleBytes / 2), false);
    return _mm512_add_epi32(_mm512_cvtps_epi32(zeros), _mm512_set1_epi32(8));
}

template <size_t kRows, bool kHasZeros, Fetch kFetch>
void w4a8_tile_of(const W4a8TileArguments& a) {
    // Its own copy, so that the head of a group has one size.
    const Int4Groups groups{a.groups.size, a.groups.has_fp16_scales, kHasZeros};
    NibbleLines<kFetch> lines(a);
    const int8_t* x = a.x;
    const std::byte* group = a.panel;
    const int32_t* starts = a.group_starts(0);
    const size_t starts_stride = a.x_stride / sizeof *starts;
    for (size_t k = 0; k < a.depth; k += groups.size, ++starts) {
        const size_t left = a.depth - k;
        const size_t count = left < groups.size ? left : groups.size;
        W4a8Sums sums[2][kRows];
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            sums[0][r] = sums[1][r] = (W4a8Sums)_mm512_set1_epi32(starts[r * starts_stride]);
        });
        if constexpr (kHasZeros) {
            unrolled<2>([&](size_t half) __attribute__((always_inline)) {
                const __m512i factor = w4a8_zero_factor(group, half);
                unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                    const __m512i eighth = _mm512_srai_epi32((__m512i)sums[half][r], 3);
                    sums[half][r] = (W4a8Sums)_mm512_mullo_epi32(eighth, factor);
                });
            });
        }
        lines.fetch(groups.head_bytes() / kLineBytes);
        const std::byte* bytes = group + groups.head_bytes();
        const std::byte* end = group + groups.bytes(count);
        for (; bytes < end; bytes += kInt4StepBytes, x += kW4a8Step) {
            lines.fetch(kInt4StepLines);
            const W4a8Weights weights(bytes);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                const __m512i first = broadcast_four(x + r * a.x_stride);
                sums[0][r] = add_fours(sums[0][r], weights.low[0], first);
                sums[1][r] = add_fours(sums[1][r], weights.low[1], first);
                const __m512i second = broadcast_four(x + r * a.x_stride + 4);
                sums[0][r] = add_fours(sums[0][r], weights.high[0], second);
                sums[1][r] = add_fours(sums[1][r], weights.high[1], second);
            });
        }
        unrolled<2>([&](size_t half) __attribute__((always_inline)) {
            const __m512 scale =
                w4a8_scales(group + half * (kInt4ScaleBytes / 2), groups.has_fp16_scales);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                float* out = a.out + r * kPanelColumns + half * kW4a8HalfColumns;
                const __m512 before = k == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out);
                const __m512 products = _mm512_cvtepi32_ps((__m512i)sums[half][r]);
                _mm512_storeu_ps(out, _mm512_fmadd_ps(scale, products, before));
            });
        });
        group = end;
    }
}

void w4a8_vnni_tile(const W4a8TileArguments& a) {
    with_rows<kW4a8TileRows>(a.num_rows, [&]<size_t kRows>() {
        with_fetch(a, [&]<Fetch kFetch>() {
            a.groups.has_zeros ? w4a8_tile_of<kRows, true, kFetch>(a)
                               : w4a8_tile_of<kRows, false, kFetch>(a);
        });
    });
}

}  // namespace
}  // namespace afd::ops::cpu
