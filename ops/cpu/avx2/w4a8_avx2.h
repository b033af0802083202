// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of int8 rows with int4 weights by vpmaddubsw, and their rows. A pair of products, at
// most 2 · 15 · 128, leaves room in 16 bits for eight, so that 32 elements of depth are added up
// before they are widened: without VNNI int4 weights are faster than int8 ones. Included by
// ops/cpu/avx2/kernels_avx2.cc only.

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/nibble_lines.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/unpack_words.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// Rows of one tile. At most eight sums at once: more rows take fewer columns.
constexpr size_t kW4a8TileRows = 4;
constexpr size_t kW4a8Step = 8;
constexpr size_t kW4a8Width = 8;  // Columns of a register.
// Steps whose products fit 16 bits.
constexpr size_t kW4a8Steps = 4;

// The order of ops/format/w4a8_rows.h, for 32 bytes.
inline __m256i w4a8_order() {
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm256_broadcastsi128_si256(order);
}

// Σ of 32 values.
inline int32_t sum_of_32(__m256i q) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m128i both =
        _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const __m128i two = _mm_add_epi32(both, _mm_shuffle_epi32(both, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

void arrange_w4a8_avx2(const ArrangeArguments& a) {
    constexpr size_t kBytes = 32;
    const size_t values_bytes = w4a8_values_bytes(a.depth);
    auto* starts = reinterpret_cast<int32_t*>(a.row + values_bytes);
    int32_t sum = 0;
    for (size_t k = 0; k < values_bytes; k += kBytes) {
        alignas(kBytes) int8_t last[kBytes] = {};
        const int8_t* from = a.q + k;
        if (k + kBytes > a.depth) {
            if (k < a.depth) std::memcpy(last, from, a.depth - k);
            from = last;
        }
        const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(a.row + k),
                            _mm256_shuffle_epi8(q, w4a8_order()));
        if (k >= a.depth) break;
        sum += sum_of_32(q);
        if ((k + kBytes) % a.group_size == 0 || k + kBytes >= a.depth) {
            *starts++ = -8 * sum;
            sum = 0;
        }
    }
}

// The integer sums of kRows rows and kUnits registers of columns over one group.
template <size_t kRows, size_t kUnits>
class W4a8Group {
  public:
    [[gnu::always_inline]] W4a8Group(const int32_t* starts, size_t stride) {
        for_each([&](size_t r, size_t unit) __attribute__((always_inline)) {
            sums_[r][unit] = _mm256_set1_epi32(starts[r * stride]);
        });
    }

    // Before anything is added: with the zero points of these columns.
    [[gnu::always_inline]] void begin_from(const float* zeros) {
        for_each([&](size_t r, size_t unit) __attribute__((always_inline)) {
            const __m256i zero = _mm256_cvtps_epi32(_mm256_loadu_ps(zeros + unit * kW4a8Width));
            const __m256i factor = _mm256_add_epi32(zero, _mm256_set1_epi32(8));
            sums_[r][unit] = _mm256_mullo_epi32(_mm256_srai_epi32(sums_[r][unit], 3), factor);
        });
    }

    // Steps of depth, of which these columns have their first words at `bytes`.
    [[gnu::always_inline]] void add(const std::byte* bytes,
                                    const int8_t* x,
                                    size_t x_stride,
                                    size_t num_steps) {
        for (size_t step = 0; step < num_steps;) {
            const size_t end = std::min(step + kW4a8Steps, num_steps);
            for_each([&](size_t r, size_t unit) __attribute__((always_inline)) {
                pairs_[r][unit] = _mm256_setzero_si256();
            });
            for (; step < end; ++step, bytes += kInt4StepBytes, x += kW4a8Step) {
                add_step(bytes, x, x_stride);
            }
            for_each([&](size_t r, size_t unit) __attribute__((always_inline)) {
                const __m256i fours = _mm256_madd_epi16(pairs_[r][unit], _mm256_set1_epi16(1));
                sums_[r][unit] = _mm256_add_epi32(sums_[r][unit], fours);
            });
        }
    }

    // out = scale · sums + out, or + 0.
    [[gnu::always_inline]] void finish(const float* scales, bool is_first, float* out) {
        for_each([&](size_t r, size_t unit) __attribute__((always_inline)) {
            float* at = out + r * kPanelColumns + unit * kW4a8Width;
            const __m256 before = is_first ? _mm256_setzero_ps() : _mm256_loadu_ps(at);
            const __m256 scale = _mm256_loadu_ps(scales + unit * kW4a8Width);
            const __m256 sum = _mm256_cvtepi32_ps(sums_[r][unit]);
            _mm256_storeu_ps(at, _mm256_fmadd_ps(scale, sum, before));
        });
    }

  private:
    template <typename Body>
    [[gnu::always_inline]] static void for_each(const Body& body) {
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            unrolled<kUnits>([&](size_t unit) __attribute__((always_inline)) { body(r, unit); });
        });
    }

    [[gnu::always_inline]] void add_step(const std::byte* bytes, const int8_t* x, size_t x_stride) {
        const __m256i low_nibbles = _mm256_set1_epi8(0x0f);
        const __m256i eights = _mm256_set1_epi8(static_cast<char>(0x88));
        unrolled<kUnits>([&](size_t unit) __attribute__((always_inline)) {
            const auto* words = reinterpret_cast<const __m256i*>(bytes) + unit;
            const __m256i q = _mm256_xor_si256(_mm256_loadu_si256(words), eights);
            const __m256i low = _mm256_and_si256(q, low_nibbles);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(q, 4), low_nibbles);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                int32_t fours[2];
                std::memcpy(fours, x + r * x_stride, sizeof fours);
                const __m256i first = _mm256_maddubs_epi16(low, _mm256_set1_epi32(fours[0]));
                const __m256i second = _mm256_maddubs_epi16(high, _mm256_set1_epi32(fours[1]));
                pairs_[r][unit] =
                    _mm256_add_epi16(pairs_[r][unit], _mm256_add_epi16(first, second));
            });
        });
    }

    __m256i pairs_[kRows][kUnits];
    __m256i sums_[kRows][kUnits];
};

// Group by group and not column by column, so that memory is asked for evenly.
template <size_t kRows, bool kHasZeros, Fetch kFetch>
void w4a8_tile_of(const W4a8TileArguments& a) {
    constexpr size_t kUnits = kRows <= 2 ? 4 : 2;
    // Its own copy, so that the head of a group has one size.
    const Int4Groups groups{a.groups.size, a.groups.has_fp16_scales, kHasZeros};
    NibbleLines<kFetch> lines(a);
    const int8_t* x = a.x;
    const std::byte* group = a.panel;
    const int32_t* starts = a.group_starts(0);
    for (size_t k = 0; k < a.depth; k += groups.size, ++starts) {
        const size_t count = std::min(groups.size, a.depth - k);
        const size_t num_steps = (count + kW4a8Step - 1) / kW4a8Step;
        lines.fetch(groups.head_bytes() / kLineBytes + num_steps * kInt4StepLines);
        const GroupHead head(group, groups);
        for (size_t column = 0; column < kPanelColumns; column += kUnits * kW4a8Width) {
            W4a8Group<kRows, kUnits> part(starts, a.x_stride / sizeof *starts);
            if constexpr (kHasZeros) part.begin_from(head.zeros + column);
            part.add(group + groups.head_bytes() + 4 * column, x, a.x_stride, num_steps);
            part.finish(head.scales + column, k == 0, a.out + column);
        }
        x += num_steps * kW4a8Step;
        group += groups.bytes(count);
    }
}

void w4a8_tile_avx2(const W4a8TileArguments& a) {
    with_rows<kW4a8TileRows>(a.num_rows, [&]<size_t kRows>() {
        with_fetch(a, [&]<Fetch kFetch>() {
            a.groups.has_zeros ? w4a8_tile_of<kRows, true, kFetch>(a)
                               : w4a8_tile_of<kRows, false, kFetch>(a);
        });
    });
}

}  // namespace
}  // namespace afd::ops::cpu
