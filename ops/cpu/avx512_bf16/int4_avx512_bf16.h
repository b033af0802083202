// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products with int4 and mxfp4 weights for AVX-512 BF16. One vpermw turns 32 nibbles into the bf16
// values of q, which vdpbf16ps multiplies like any others; the scale multiplies the sum of a group:
//   p = one vdpbf16ps chain over the group's x · q, from 0;  sum = fma(scale, p, sum)
// for each group in turn. That is the sum of x · (q · scale) only where q · scale is a bf16 as it
// stands, which a scale of at most five significant bits makes sure of (q has three). A column with
// another scale takes p = Σ x · ((q · scale) →bf16) and sum + p in that group, at about a third of
// the speed. Those of mxfp4 are powers of two. Included by
// ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.
//
// vpermw and the shifts share ports with the multiplier, so few rows are bound by unpacking: from
// cache one row passes 36 GB/s of weights, two 26, four 15. Shifts by multiplication, on another
// port, were slower, and so were loads at odd addresses in their place.

#include <immintrin.h>

#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/nibble_lines.h"
#include "ops/format/packed_shape.h"

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

// The same of e2m1.
inline __m512i e2m1_values() {
    const __m512 q =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return (__m512i)_mm512_cvtne2ps_pbh(q, q);
}

// What the scales of one half of a group's columns come to.
struct HalfScales {
    __m512 inside;   // Multiplies q, before rounding: 1 where the scale is short.
    __m512 outside;  // Multiplies the group's sum: 1 where it is not.
};

inline __m512 load_scales(const std::byte* scales, bool is_fp16) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    if (is_fp16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <bool kHasLong>
inline HalfScales scales_of(const std::byte* group, size_t half, bool is_fp16) {
    // Of a float's mantissa behind the first five significant bits.
    constexpr int kLongBits = 0x7ffff;
    const __m512 scale = load_scales(group + half * kHalfScaleBytes, is_fp16);
    const __m512 one = _mm512_set1_ps(1.0f);
    if constexpr (!kHasLong) return {one, scale};
    const __mmask16 is_long =
        _mm512_test_epi32_mask(_mm512_castps_si512(scale), _mm512_set1_epi32(kLongBits));
    return {_mm512_mask_blend_ps(is_long, one, scale), _mm512_mask_blend_ps(is_long, scale, one)};
}

// Pairs of bf16 times the scale of their column, →bf16. Products with a short scale are bf16 as
// they stand, in the upper halves of their lanes; one that is subnormal stays so, and is zero where
// it is multiplied.
template <bool kHasLong>
inline __m512i scaled_pairs(__m512i pairs, __m512 scale) {
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const __m512 odd = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    if constexpr (!kHasLong) {
        const __m512i low = _mm512_castps_si512(_mm512_mul_ps(even, scale));
        const __m512i high = _mm512_castps_si512(_mm512_mul_ps(odd, scale));
        return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
    }
    const auto rounded = [&](__m512 value) {
        return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(value, scale)));
    };
    return _mm512_or_si512(rounded(even), _mm512_slli_epi32(rounded(odd), 16));
}

// kRows rows x one panel, group by group.
template <size_t kRows, Fetch kFetch>
class NibbleRowSums {
  public:
    explicit NibbleRowSums(const Int4TileArguments& a)
        : x_(a.x),
          x_stride_(a.x_stride),
          group_(a.panel),
          values_(a.is_mxfp4 ? e2m1_values() : nibble_values()),
          is_fp16_(a.has_fp16_scales),
          lines_(a),
          sums_{} {}

    // Whether any column has one in the group that begins `bytes` behind the next one's begin.
    bool has_long_scale(size_t bytes) const {
        const __m512i scales = _mm512_load_si512(group_ + bytes);
        const __m512i long_bits =
            is_fp16_ ? _mm512_set1_epi16(kInt4LongFp16Bits) : _mm512_set1_epi16(kInt4LongBf16Bits);
        return _mm512_test_epi16_mask(scales, long_bits) != 0;
    }

    // The next `count` elements of depth, one group.
    template <bool kHasLong>
    [[gnu::always_inline]] void add_group(size_t count) {
        const HalfScales scales[2] = {scales_of<kHasLong>(group_, 0, is_fp16_),
                                      scales_of<kHasLong>(group_, 1, is_fp16_)};
        Sums products{};
        const std::byte* bytes = group_ + kInt4ScaleBytes;
        lines_.fetch(kInt4ScaleLines);
        size_t k = 0;
        for (; k + kInt4Step <= count; k += kInt4Step, bytes += kInt4StepBytes) {
            lines_.fetch(kInt4StepLines);
            add_step<kHasLong>(bytes, x_ + k, kInt4Step, scales, products);
        }
        if (k < count) {
            lines_.fetch(kInt4StepLines);
            add_step<kHasLong>(bytes, x_ + k, count - k, scales, products);
        }
        add_products(scales, products);
        x_ += count;
        group_ += int4_group_bytes(count);
    }

    // The next two groups, short scales only. They take turns, as the chain of one alone would wait
    // for itself. Lines are fetched in the order in which they lie: alternating halves the speed.
    [[gnu::always_inline]] void add_two_groups(size_t group_size) {
        const size_t group_bytes = int4_group_bytes(group_size);
        const HalfScales none[2]{};
        Sums first{};
        Sums second{};
        const std::byte* bytes = group_ + kInt4ScaleBytes;
        lines_.fetch(2 * kInt4ScaleLines);
        for (size_t k = 0; k < group_size; k += kInt4Step, bytes += kInt4StepBytes) {
            lines_.fetch(2 * kInt4StepLines);
            add_step<false>(bytes, x_ + k, kInt4Step, none, first);
            add_step<false>(bytes + group_bytes, x_ + group_size + k, kInt4Step, none, second);
        }
        const std::byte* next = group_ + group_bytes;
        add_products({scales_of<false>(group_, 0, is_fp16_), scales_of<false>(group_, 1, is_fp16_)},
                     first);
        add_products({scales_of<false>(next, 0, is_fp16_), scales_of<false>(next, 1, is_fp16_)},
                     second);
        x_ += 2 * group_size;
        group_ += 2 * group_bytes;
    }

    void store(float* out) const {
        for (size_t half = 0; half < 2; ++half) {
            for (size_t r = 0; r < kRows; ++r) {
                _mm512_storeu_ps(out + r * kPanelColumns + half * kHalfColumns, sums_[half][r]);
            }
        }
    }

  private:
    using Sums = __m512[2][kRows];

    // Eight elements of depth at `bytes`, of which `count` count.
    template <bool kHasLong>
    [[gnu::always_inline]] void add_step(const std::byte* bytes,
                                         const Bf16* x,
                                         size_t count,
                                         const HalfScales (&scales)[2],
                                         Sums& products) const {
        const __m512i nibbles[2] = {_mm512_load_si512(bytes),
                                    _mm512_load_si512(bytes + kHalfBytes)};
        const auto add_pair = [&](unsigned pair, auto&& broadcast_x)
            __attribute__((always_inline)) {
            __m512i weights[2];
            for (size_t half = 0; half < 2; ++half) {
                weights[half] =
                    _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles[half], 4 * pair), values_);
                if constexpr (kHasLong) {
                    weights[half] = scaled_pairs<true>(weights[half], scales[half].inside);
                }
            }
            for (size_t r = 0; r < kRows; ++r) {
                const __m512i value = broadcast_x(x + r * x_stride_ + 2 * pair);
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

    [[gnu::always_inline]] void add_products(const HalfScales (&scales)[2], const Sums& products) {
        for (size_t half = 0; half < 2; ++half) {
            for (size_t r = 0; r < kRows; ++r) {
                sums_[half][r] =
                    _mm512_fmadd_ps(scales[half].outside, products[half][r], sums_[half][r]);
            }
        }
    }

    const Bf16* x_;
    size_t x_stride_;
    const std::byte* group_;
    __m512i values_;  // Of nibbles.
    bool is_fp16_;
    NibbleLines<kFetch> lines_;
    Sums sums_;
};

// Rows whose groups take turns; the sums of more rows are enough by themselves, and so are their
// registers.
constexpr size_t kTwoGroupRows = 4;

template <size_t kRows, Fetch kFetch>
void int4_rows_of(const Int4TileArguments& a) {
    NibbleRowSums<kRows, kFetch> rows(a);
    for (size_t k = 0; k < a.depth;) {
        const size_t left = a.depth - k;
        const size_t count = left < a.group_size ? left : a.group_size;
        if (rows.has_long_scale(0)) {
            rows.template add_group<true>(count);
        } else if (kRows <= kTwoGroupRows && left >= 2 * a.group_size &&
                   !rows.has_long_scale(int4_group_bytes(a.group_size))) {
            rows.add_two_groups(a.group_size);
            k += a.group_size;
        } else {
            rows.template add_group<false>(count);
        }
        k += count;
    }
    rows.store(a.out);
}

template <size_t kRows>
void int4_tile_of(const Int4TileArguments& a) {
    with_fetch(a, [&]<Fetch kFetch>() { int4_rows_of<kRows, kFetch>(a); });
}

// Rows of one tile: more sums would not fit into the registers. Of the multiplier's peak eight rows
// reach 0.88 to 0.91 in cache (groups of 32) or 0.94 (of 64). Twelve with their sums in memory:
// 0.86. One half of the columns after the other, so that its sums fit easily: 0.67, as the chains
// get too short. Loops spelled out as in the other tiles (unrolled): 0.68.
constexpr size_t kInt4TileRows = 8;

// `count` elements of depth of the group that begins there, to bf16 pairs: (value · scale) →bf16,
// `values` being those of the nibbles.
template <bool kHasLong>
void unpack_nibble_group(
    const UnpackArguments& a, const std::byte* group, size_t count, __m512i values, uint16_t* out) {
    const __m512 scales[2] = {load_scales(group, a.has_fp16_scales),
                              load_scales(group + kHalfScaleBytes, a.has_fp16_scales)};
    const std::byte* bytes = group + kInt4ScaleBytes;
    const auto unpack_pair = [&](unsigned pair) __attribute__((always_inline)) {
        for (size_t half = 0; half < 2; ++half) {
            const __m512i nibbles = _mm512_load_si512(bytes + half * kHalfBytes);
            const __m512i weights =
                _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles, 4 * pair), values);
            _mm512_store_si512(out + half * kPanelColumns,
                               scaled_pairs<kHasLong>(weights, scales[half]));
        }
        out += kPairElements;
    };
    for (size_t k = 0; k < count; k += kInt4Step, bytes += kInt4StepBytes) {
        fetch_own_line<Fetch::kNear, AfterUse::kKeep>(bytes, a.fetch_ahead);
        fetch_own_line<Fetch::kNear, AfterUse::kKeep>(bytes + kHalfBytes, a.fetch_ahead);
        const size_t left = count - k;
        if (left >= kInt4Step) {
            unrolled<4>([&](size_t pair)
                            __attribute__((always_inline)) { unpack_pair(unsigned(pair)); });
            continue;
        }
        for (unsigned pair = 0; 2 * pair < left; ++pair) unpack_pair(pair);
    }
}

inline void unpack_nibble_pairs(const UnpackArguments& a, __m512i values) {
    const __m512i long_bits = _mm512_set1_epi16(
        static_cast<short>(a.has_fp16_scales ? kInt4LongFp16Bits : kInt4LongBf16Bits));
    const std::byte* group = a.panel;
    uint16_t* out = a.out;
    for (size_t first = 0; first < a.depth; first += a.group_size) {
        const size_t left = a.depth - first;
        const size_t count = left < a.group_size ? left : a.group_size;
        const bool has_long = _mm512_test_epi16_mask(_mm512_load_si512(group), long_bits) != 0;
        if (has_long) {
            unpack_nibble_group<true>(a, group, count, values, out);
        } else {
            unpack_nibble_group<false>(a, group, count, values, out);
        }
        out += (count + 1) / 2 * kPairElements;
        group += int4_group_bytes(count);
    }
}

// For a class that multiplies bf16 pairs (Kernels::unpack_int4).
void unpack_int4_pairs(const UnpackArguments& a) {
    unpack_nibble_pairs(a, nibble_values());
}

// A subnormal becomes zero, as it would in the product.
void unpack_mxfp4_pairs(const UnpackArguments& a) {
    unpack_nibble_pairs(a, e2m1_values());
}

void int4_tile(const Int4TileArguments& a) {
    with_rows<kInt4TileRows>(a.num_rows, [&]<size_t kRows>() { int4_tile_of<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
