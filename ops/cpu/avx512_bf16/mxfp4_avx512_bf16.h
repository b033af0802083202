// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of few rows with mxfp4 weights for AVX-512 BF16, which expands them in registers: the
// bits are those of unpack_mxfp4 and tile, one chain along the depth. A scale is a power of two, so
// vpermw makes the bf16 value of a nibble and an addition to its exponent the product with the
// scale; a zero has no exponent and is left alone. Groups in which that could leave the normal
// numbers of bf16 multiply instead. Included by ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.

#include <immintrin.h>

#include "ops/cpu/avx512_bf16/int4_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// kRows rows x one panel, group by group.
template <size_t kRows, Fetch kFetch>
class Mxfp4Rows {
  public:
    explicit Mxfp4Rows(const Int4TileArguments& a)
        : x_(a.x), x_stride_(a.x_stride), group_(a.panel), lines_(a), sums_{} {}

    // Whether every scale of the next group is 2^-126 ... 2^125, so that no product but zero is
    // beyond the normal numbers.
    bool has_normal_products() const {
        constexpr int kLeast = 0x0080;
        constexpr int kMost = 0x7e00;
        constexpr int kMantissa = 0x007f;
        const __m512i scales = _mm512_load_si512(group_);
        const __m512i above = _mm512_sub_epi16(scales, _mm512_set1_epi16(kLeast));
        const __mmask32 is_outside =
            _mm512_cmpgt_epu16_mask(above, _mm512_set1_epi16(kMost - kLeast));
        return (is_outside | _mm512_test_epi16_mask(scales, _mm512_set1_epi16(kMantissa))) == 0;
    }

    // The next `count` elements of depth, one group.
    template <bool kAddsExponents>
    [[gnu::always_inline]] void add_group(size_t count) {
        const __m512i scales[2] = {scales_of<kAddsExponents>(0), scales_of<kAddsExponents>(1)};
        const std::byte* bytes = group_ + kInt4ScaleBytes;
        lines_.fetch(kInt4ScaleLines);
        size_t k = 0;
        for (; k + kInt4Step <= count; k += kInt4Step, bytes += kInt4StepBytes) {
            lines_.fetch(kInt4StepLines);
            add_step<kAddsExponents>(bytes, x_ + k, kInt4Step, scales);
        }
        if (k < count) {
            lines_.fetch(kInt4StepLines);
            add_step<kAddsExponents>(bytes, x_ + k, count - k, scales);
        }
        x_ += count;
        group_ += int4_group_bytes(count);
    }

    void store(float* out) const {
        for (size_t half = 0; half < 2; ++half) {
            for (size_t r = 0; r < kRows; ++r) {
                _mm512_storeu_ps(out + r * kPanelColumns + half * kHalfColumns, sums_[half][r]);
            }
        }
    }

  private:
    // Of 16 columns: fp32, or what an addition to both bf16 of a pair multiplies them by.
    template <bool kAddsExponents>
    __m512i scales_of(size_t half) const {
        const std::byte* scales = group_ + half * kHalfScaleBytes;
        if constexpr (!kAddsExponents) {
            return _mm512_castps_si512(load_scales(scales, false));
        }
        constexpr int kOne = 0x3f80;
        const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
        const __m512i steps =
            _mm512_cvtepu16_epi32(_mm256_sub_epi16(bits, _mm256_set1_epi16(kOne)));
        return _mm512_or_si512(steps, _mm512_slli_epi32(steps, 16));
    }

    template <bool kAddsExponents>
    static __m512i scaled(__m512i pairs, __m512i scale) {
        if constexpr (!kAddsExponents) return scaled_pairs(pairs, _mm512_castsi512_ps(scale));
        const __mmask32 is_not_zero = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
        return _mm512_mask_add_epi16(pairs, is_not_zero, pairs, scale);
    }

    // Eight elements of depth at `bytes`, of which `count` count.
    template <bool kAddsExponents>
    [[gnu::always_inline]] void add_step(const std::byte* bytes,
                                         const Bf16* x,
                                         size_t count,
                                         const __m512i (&scales)[2]) {
        const __m512i values = e2m1_values();
        const __m512i nibbles[2] = {_mm512_load_si512(bytes),
                                    _mm512_load_si512(bytes + kHalfBytes)};
        const auto add_pair = [&](unsigned pair, auto&& broadcast_x)
            __attribute__((always_inline)) {
            __m512i weights[2];
            for (size_t half = 0; half < 2; ++half) {
                weights[half] = scaled<kAddsExponents>(
                    _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles[half], 4 * pair), values),
                    scales[half]);
            }
            for (size_t r = 0; r < kRows; ++r) {
                const __m512i value = broadcast_x(x + r * x_stride_ + 2 * pair);
                for (size_t half = 0; half < 2; ++half) {
                    sums_[half][r] = dot_pairs(sums_[half][r], weights[half], value);
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

    const Bf16* x_;
    size_t x_stride_;
    const std::byte* group_;
    NibbleLines<kFetch> lines_;
    __m512 sums_[2][kRows];
};

template <size_t kRows, Fetch kFetch>
void mxfp4_rows(const Int4TileArguments& a) {
    Mxfp4Rows<kRows, kFetch> rows(a);
    for (size_t k = 0; k < a.depth; k += a.group_size) {
        const size_t left = a.depth - k;
        const size_t count = left < a.group_size ? left : a.group_size;
        if (rows.has_normal_products()) {
            rows.template add_group<true>(count);
        } else {
            rows.template add_group<false>(count);
        }
    }
    rows.store(a.out);
}

template <size_t kRows>
void mxfp4_tile_of(const Int4TileArguments& a) {
    with_fetch(a, [&]<Fetch kFetch>() { mxfp4_rows<kRows, kFetch>(a); });
}

// With more rows to unpack a panel once for all of them is faster.
constexpr size_t kMxfp4TileRows = 8;

void mxfp4_tile(const Int4TileArguments& a) {
    with_rows<kMxfp4TileRows>(a.num_rows, [&]<size_t kRows>() { mxfp4_tile_of<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
