// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of int8 rows with int4 weights for AVX-512 VNNI. The low nibbles of 64 bytes of a panel
// are four elements of 16 columns, and so are the high ones; plus 8 they are the unsigned bytes
// that vpdpbusd wants, and the rows' sums take that back (ops/format/w4a8_rows.h). Included by
// ops/cpu/avx512/kernels_avx512_vnni.cc only.

#include <immintrin.h>

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/nibble_lines.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// Rows of one tile: 4 registers each, and those of the weights.
constexpr size_t kW4a8TileRows = 6;
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

template <size_t kRows, Fetch kFetch>
void w4a8_tile_of(const W4a8TileArguments& a) {
    const __m512i low_nibbles = _mm512_set1_epi8(0x0f);
    const __m512i eights = _mm512_set1_epi8(static_cast<char>(0x88));
    NibbleLines<kFetch> lines(a);
    __m512 sums[2][kRows] = {};
    const int8_t* x = a.x;
    const std::byte* group = a.panel;
    const int32_t* starts = a.group_starts(0);
    const size_t starts_stride = a.x_stride / sizeof *starts;
    for (size_t k = 0; k < a.depth; ++starts) {
        const size_t left = a.depth - k;
        const size_t count = left < a.group_size ? left : a.group_size;
        const size_t num_steps = (count + kW4a8Step - 1) / kW4a8Step;
        __m512i products[2][kRows];
        for (size_t r = 0; r < kRows; ++r) {
            products[0][r] = products[1][r] = _mm512_set1_epi32(starts[r * starts_stride]);
        }
        lines.fetch(kInt4ScaleLines);
        const std::byte* bytes = group + kInt4ScaleBytes;
        for (size_t step = 0; step < num_steps; ++step, bytes += kInt4StepBytes, x += kW4a8Step) {
            lines.fetch(kInt4StepLines);
            for (size_t half = 0; half < 2; ++half) {
                const __m512i q =
                    _mm512_xor_si512(_mm512_load_si512(bytes + half * kLineBytes), eights);
                const __m512i low = _mm512_and_si512(q, low_nibbles);
                const __m512i high = _mm512_and_si512(_mm512_srli_epi16(q, 4), low_nibbles);
                for (size_t r = 0; r < kRows; ++r) {
                    const int8_t* values = x + r * a.x_stride;
                    products[half][r] =
                        _mm512_dpbusd_epi32(products[half][r], low, broadcast_four(values));
                    products[half][r] =
                        _mm512_dpbusd_epi32(products[half][r], high, broadcast_four(values + 4));
                }
            }
        }
        for (size_t half = 0; half < 2; ++half) {
            const __m512 scale =
                w4a8_scales(group + half * (kInt4ScaleBytes / 2), a.has_fp16_scales);
            for (size_t r = 0; r < kRows; ++r) {
                sums[half][r] =
                    _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(products[half][r]), sums[half][r]);
            }
        }
        group = bytes;
        k += count;
    }
    for (size_t half = 0; half < 2; ++half) {
        for (size_t r = 0; r < kRows; ++r) {
            _mm512_storeu_ps(a.out + r * kPanelColumns + half * kW4a8HalfColumns, sums[half][r]);
        }
    }
}

void w4a8_vnni_tile(const W4a8TileArguments& a) {
    with_rows<kW4a8TileRows>(a.num_rows, [&]<size_t kRows>() {
        with_fetch(a, [&]<Fetch kFetch>() { w4a8_tile_of<kRows, kFetch>(a); });
    });
}

}  // namespace
}  // namespace afd::ops::cpu
