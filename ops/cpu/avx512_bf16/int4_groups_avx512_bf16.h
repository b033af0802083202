// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of many rows with int4 weights of long scales for AVX-512 BF16: a piece of a panel is
// unpacked once for all rows, with the bits of int4_avx512_bf16.h. Of the multiplier's peak 0.8 (in
// groups of 64, on Zen 4) instead of 0.6; short scales, which need no multiplication of weights,
// are faster unpacked in registers (0.72 to 0.82 here, 0.83 to 0.88 there). Included by
// ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.

#include <immintrin.h>

#include "ops/cpu/avx512_bf16/int4_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// `count` elements of depth of the group that begins there: their pairs go to `out`, and what
// multiplies the sums over them to `out_scales`.
template <Scaling kScaling>
void unpack_group_pairs(const UnpackGroupsArguments& a,
                        const std::byte* group,
                        size_t count,
                        __m512i values,
                        uint16_t* out,
                        float* out_scales) {
    const std::byte* bytes = group + kInt4ScaleBytes;
    for (size_t half = 0; half < 2; ++half) {
        const HalfScales scales = scales_of<kScaling>(group, half, a.groups.has_fp16_scales);
        _mm512_storeu_ps(out_scales + half * kHalfColumns, scales.outside);
        for (size_t k = 0; k < count; k += kInt4Step) {
            const std::byte* words = bytes + k / kInt4Step * kInt4StepBytes + half * kHalfBytes;
            fetch_own_line<Fetch::kNear>(words, a.fetch_ahead);
            const __m512i nibbles = _mm512_load_si512(words);
            uint16_t* pairs = out + k * kPanelColumns + half * kPanelColumns;
            for (unsigned pair = 0; pair < 4 && k + 2 * pair < count; ++pair) {
                __m512i weights =
                    _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles, 4 * pair), values);
                if constexpr (kScaling == Scaling::kLong) {
                    weights = scaled_pairs<kScaling>(weights, scales.zero, scales.inside);
                }
                _mm512_store_si512(pairs + pair * kPairElements, weights);
            }
        }
    }
}

// For Kernels::unpack_groups.
void unpack_groups(const UnpackGroupsArguments& a) {
    const __m512i values = nibble_values();
    for_each_nibble_group(
        a, [&]<Scaling kScaling>(const std::byte* group, size_t first, size_t count) {
            uint16_t* const out = a.out + first * kPanelColumns;
            float* const scales = a.scales + first / a.groups.size * kPanelColumns;
            // Weights with zero points have no order of their own.
            if constexpr (kScaling != Scaling::kFromZero) {
                unpack_group_pairs<kScaling>(a, group, count, values, out, scales);
            }
        });
}

// kRows rows x one panel of unpacked groups.
template <size_t kRows>
void group_tile_of(const GroupTileArguments& a) {
    const uint16_t* weights = a.panel;
    const float* scales = a.scales;
    for (size_t first = 0; first < a.depth; first += a.group_size, scales += kPanelColumns) {
        const size_t left = a.depth - first;
        const size_t count = left < a.group_size ? left : a.group_size;
        const Bf16* x = a.x + first;
        __m512 low[kRows];
        __m512 high[kRows];
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            low[r] = high[r] = _mm512_setzero_ps();
        });
        const auto step = [&](auto&& broadcast_x) __attribute__((always_inline)) {
            const __m512i w_low = _mm512_load_si512(weights);
            const __m512i w_high = _mm512_load_si512(weights + kPanelColumns);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                const __m512i value = broadcast_x(x + r * a.x_stride);
                low[r] = dot_pairs(low[r], w_low, value);
                high[r] = dot_pairs(high[r], w_high, value);
            });
            weights += kPairElements;
        };
        for (size_t k = 0; k + 2 <= count; k += 2, x += 2) step(broadcast_pair);
        if (count % 2 != 0) step(broadcast_last);
        const __m512 scale_low = _mm512_loadu_ps(scales);
        const __m512 scale_high = _mm512_loadu_ps(scales + kHalfColumns);
        const bool goes_on = a.goes_on || first > 0;
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            float* out = a.out + r * kPanelColumns;
            const __m512 none = _mm512_setzero_ps();
            const __m512 before_low = goes_on ? _mm512_loadu_ps(out) : none;
            const __m512 before_high = goes_on ? _mm512_loadu_ps(out + kHalfColumns) : none;
            _mm512_storeu_ps(out, _mm512_fmadd_ps(scale_low, low[r], before_low));
            _mm512_storeu_ps(out + kHalfColumns, _mm512_fmadd_ps(scale_high, high[r], before_high));
        });
    }
}

// For Kernels::group_tile.
void group_tile(const GroupTileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() { group_tile_of<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
