// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products with int4 and mxfp4 weights for AVX-512 BF16. One vpermw turns 32 nibbles into the bf16
// values of q, which vdpbf16ps multiplies like any others; the scale multiplies the sum of a group:
//   p = one vdpbf16ps chain over the group's x · q, from 0;  sum = fma(scale, p, sum)
// for each group in turn. That is the sum of x · (q · scale) only where q · scale is a bf16 as it
// stands, which a scale of at most five significant bits makes sure of (q has three). A column with
// another scale takes p = Σ x · ((q · scale) →bf16) and sum + p in that group, at half of the speed
// or less with one or two rows. The scales of mxfp4 are powers of two. Weights with zero points are
// bf16 ones once they are unpacked, ((q - zero) · scale) →bf16, and one chain goes over all groups.
// Included by ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.
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

// What a group multiplies by: q, where all its scales are short; (q · scale) →bf16 in the columns
// of long ones; ((q - zero) · scale) →bf16.
enum class Scaling { kShort, kLong, kFromZero };

// What the scales of one half of a group's columns come to.
struct HalfScales {
    __m512 zero;     // Taken from q.
    __m512 inside;   // Multiplies that, before rounding: 1 where the scale is short.
    __m512 outside;  // Multiplies the group's sum: 1 where it is not.
};

inline __m512 load_scales(const std::byte* scales, bool is_fp16) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    if (is_fp16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <Scaling kScaling>
inline HalfScales scales_of(const std::byte* group, size_t half, bool is_fp16) {
    // Of a float's mantissa behind the first five significant bits.
    constexpr int kLongBits = 0x7ffff;
    const __m512 scale = load_scales(group + half * kHalfScaleBytes, is_fp16);
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 none = _mm512_setzero_ps();
    if constexpr (kScaling == Scaling::kShort) return {none, one, scale};
    if constexpr (kScaling == Scaling::kFromZero) {
        return {load_scales(group + kInt4ScaleBytes + half * kHalfScaleBytes, false), scale, one};
    }
    const __mmask16 is_long =
        _mm512_test_epi32_mask(_mm512_castps_si512(scale), _mm512_set1_epi32(kLongBits));
    return {
        none, _mm512_mask_blend_ps(is_long, one, scale), _mm512_mask_blend_ps(is_long, scale, one)};
}

// Elements 0, 16, 1, 17, ... 15, 31.
inline __m512i interleaved() {
    const __m512i columns = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(columns,
                           _mm512_slli_epi32(_mm512_add_epi32(columns, _mm512_set1_epi32(16)), 16));
}

// Pairs of bf16, less the zero point of their column, times its scale, →bf16. Products with a short
// scale are bf16 as they stand, in the upper halves of their lanes; one that is subnormal stays so,
// and is zero where it is multiplied.
template <Scaling kScaling>
inline __m512i scaled_pairs(__m512i pairs, __m512 zero, __m512 scale) {
    __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    __m512 odd = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    if constexpr (kScaling == Scaling::kFromZero) {
        even = _mm512_sub_ps(even, zero);
        odd = _mm512_sub_ps(odd, zero);
    }
    if constexpr (kScaling == Scaling::kShort) {
        const __m512i low = _mm512_castps_si512(_mm512_mul_ps(even, scale));
        const __m512i high = _mm512_castps_si512(_mm512_mul_ps(odd, scale));
        return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(low, 16), high);
    }
    const __m512i rounded =
        (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(odd, scale), _mm512_mul_ps(even, scale));
    return _mm512_permutexvar_epi16(interleaved(), rounded);
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
          groups_(a.groups),
          lines_(a),
          sums_{} {}

    // Whether any column has one in the group that begins `bytes` behind the next one's begin.
    bool has_long_scale(size_t bytes) const {
        const __m512i scales = _mm512_load_si512(group_ + bytes);
        const __m512i long_bits = groups_.has_fp16_scales ? _mm512_set1_epi16(kInt4LongFp16Bits)
                                                          : _mm512_set1_epi16(kInt4LongBf16Bits);
        return _mm512_test_epi16_mask(scales, long_bits) != 0;
    }

    // The next `count` elements of depth, one group.
    template <Scaling kScaling>
    [[gnu::always_inline]] void add_group(size_t count) {
        const HalfScales scales[2] = {scales_of<kScaling>(group_, 0, groups_.has_fp16_scales),
                                      scales_of<kScaling>(group_, 1, groups_.has_fp16_scales)};
        if constexpr (kScaling == Scaling::kFromZero) {
            lines_.fetch(2 * kInt4ScaleLines);
            add_steps<kScaling>(group_ + 2 * kInt4ScaleBytes, count, scales, sums_);
        } else {
            lines_.fetch(kInt4ScaleLines);
            Sums products{};
            add_steps<kScaling>(group_ + kInt4ScaleBytes, count, scales, products);
            add_products(scales, products);
        }
        x_ += count;
        group_ += groups_.bytes(count);
    }

    // The next two groups, short scales only. They take turns, as the chain of one alone would wait
    // for itself. Lines are fetched in the order in which they lie: alternating halves the speed.
    [[gnu::always_inline]] void add_two_groups() {
        const size_t group_size = groups_.size;
        const size_t group_bytes = groups_.bytes(group_size);
        const HalfScales none[2]{};
        Sums first{};
        Sums second{};
        const std::byte* bytes = group_ + kInt4ScaleBytes;
        lines_.fetch(2 * kInt4ScaleLines);
        for (size_t k = 0; k < group_size; k += kInt4Step, bytes += kInt4StepBytes) {
            lines_.fetch(2 * kInt4StepLines);
            add_step<Scaling::kShort>(bytes, x_ + k, kInt4Step, none, first);
            add_step<Scaling::kShort>(
                bytes + group_bytes, x_ + group_size + k, kInt4Step, none, second);
        }
        const auto add_plain = [&](const std::byte* group, const Sums& products)
            __attribute__((always_inline)) {
            add_products({scales_of<Scaling::kShort>(group, 0, groups_.has_fp16_scales),
                          scales_of<Scaling::kShort>(group, 1, groups_.has_fp16_scales)},
                         products);
        };
        add_plain(group_, first);
        add_plain(group_ + group_bytes, second);
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

    // The words of a group begin at `bytes`.
    template <Scaling kScaling>
    [[gnu::always_inline]] void add_steps(const std::byte* bytes,
                                          size_t count,
                                          const HalfScales (&scales)[2],
                                          Sums& products) {
        size_t k = 0;
        for (; k + kInt4Step <= count; k += kInt4Step, bytes += kInt4StepBytes) {
            lines_.fetch(kInt4StepLines);
            add_step<kScaling>(bytes, x_ + k, kInt4Step, scales, products);
        }
        if (k == count) return;
        lines_.fetch(kInt4StepLines);
        add_step<kScaling>(bytes, x_ + k, count - k, scales, products);
    }

    // Eight elements of depth at `bytes`, of which `count` count.
    template <Scaling kScaling>
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
                if constexpr (kScaling != Scaling::kShort) {
                    weights[half] = scaled_pairs<kScaling>(
                        weights[half], scales[half].zero, scales[half].inside);
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
    Int4Groups groups_;
    NibbleLines<kFetch> lines_;
    Sums sums_;
};

// Rows whose groups take turns; the sums of more rows are enough by themselves, and so are their
// registers.
constexpr size_t kTwoGroupRows = 4;

template <size_t kRows, Fetch kFetch>
void int4_rows_of(const Int4TileArguments& a) {
    NibbleRowSums<kRows, kFetch> rows(a);
    const size_t size = a.groups.size;
    for (size_t k = 0; k < a.depth;) {
        const size_t left = a.depth - k;
        const size_t count = left < size ? left : size;
        if (a.groups.has_zeros) {
            rows.template add_group<Scaling::kFromZero>(count);
        } else if (rows.has_long_scale(0)) {
            rows.template add_group<Scaling::kLong>(count);
        } else if (kRows <= kTwoGroupRows && left >= 2 * size &&
                   !rows.has_long_scale(a.groups.bytes(size))) {
            rows.add_two_groups();
            k += size;
        } else {
            rows.template add_group<Scaling::kShort>(count);
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

// With zero points more rows than these unpack a panel once.
constexpr size_t kInt4ZeroRows = 4;

// `count` elements of depth of the group that begins there, to bf16 pairs: ((value - zero) · scale)
// →bf16, `values` being those of the nibbles. kShort: that is a bf16 as it stands.
template <Scaling kScaling>
void unpack_nibble_group(
    const UnpackArguments& a, const std::byte* group, size_t count, __m512i values, uint16_t* out) {
    __m512 scales[2];
    __m512 zeros[2];
    for (size_t half = 0; half < 2; ++half) {
        const std::byte* head = group + half * kHalfScaleBytes;
        scales[half] = load_scales(head, a.groups.has_fp16_scales);
        zeros[half] = kScaling == Scaling::kFromZero ? load_scales(head + kInt4ScaleBytes, false)
                                                     : _mm512_setzero_ps();
    }
    const std::byte* bytes = group + a.groups.head_bytes();
    const auto unpack_pair = [&](unsigned pair) __attribute__((always_inline)) {
        for (size_t half = 0; half < 2; ++half) {
            const __m512i nibbles = _mm512_load_si512(bytes + half * kHalfBytes);
            const __m512i weights =
                _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles, 4 * pair), values);
            _mm512_store_si512(out + half * kPanelColumns,
                               scaled_pairs<kScaling>(weights, zeros[half], scales[half]));
        }
        out += kPairElements;
    };
    for (size_t k = 0; k < count; k += kInt4Step, bytes += kInt4StepBytes) {
        fetch_own_line<Fetch::kNear>(bytes, a.fetch_ahead);
        fetch_own_line<Fetch::kNear>(bytes + kHalfBytes, a.fetch_ahead);
        const size_t left = count - k;
        if (left >= kInt4Step) {
            unrolled<4>([&](size_t pair)
                            __attribute__((always_inline)) { unpack_pair(unsigned(pair)); });
            continue;
        }
        for (unsigned pair = 0; 2 * pair < left; ++pair) unpack_pair(pair);
    }
}

// Calls body.template operator()<kScaling>(group, first, count) for each group of a panel, which
// begins with element `first` and has `count`.
template <typename Body>
[[gnu::always_inline]] inline void for_each_nibble_group(const UnpackArguments& a,
                                                         const Body& body) {
    const __m512i long_bits = _mm512_set1_epi16(
        static_cast<short>(a.groups.has_fp16_scales ? kInt4LongFp16Bits : kInt4LongBf16Bits));
    const std::byte* group = a.panel;
    for (size_t first = 0; first < a.depth; first += a.groups.size) {
        const size_t left = a.depth - first;
        const size_t count = left < a.groups.size ? left : a.groups.size;
        if (a.groups.has_zeros) {
            body.template operator()<Scaling::kFromZero>(group, first, count);
        } else if (_mm512_test_epi16_mask(_mm512_load_si512(group), long_bits) != 0) {
            body.template operator()<Scaling::kLong>(group, first, count);
        } else {
            body.template operator()<Scaling::kShort>(group, first, count);
        }
        group += a.groups.bytes(count);
    }
}

inline void unpack_nibble_pairs(const UnpackArguments& a, __m512i values) {
    for_each_nibble_group(
        a, [&]<Scaling kScaling>(const std::byte* group, size_t first, size_t count) {
            unpack_nibble_group<kScaling>(a, group, count, values, a.out + first * kPanelColumns);
        });
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
