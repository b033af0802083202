// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of int8 weights with vpmaddwd on 16 lanes of 16 bits. A word of a panel is a column's four
// weights: a mask makes lanes of the first and the third of them, a shift of the second and the
// fourth, and of x the same is made a piece of depth ahead, so that both products of a step add to
// the column where it stands. Weights are stored with 128 added, which the row sums take back.
// Included by the kernel files of classes without VNNI.

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// Of one pass.
constexpr size_t kMaddRows = 4;
// So few rows stream through whole panels, as in tile_avx2.h.
constexpr size_t kMaddStreamRows = 2;
constexpr size_t kMaddWidth = 8;  // Columns of a register.
constexpr size_t kQuadBytes = 4 * kPanelColumns;
// Quads of depth of all rows that are lanes of 16 bits at a time.
constexpr size_t kMaddTileRows = 12;
constexpr size_t kMaddQuads = BlockSizes::kWidenedMax / (2 * kMaddTileRows);
static_assert(kMaddQuads % kMaddWidth == 0);

// Some quads of one row: elements 0 and 2 of each, and 1 and 3.
struct LaneRow {
    alignas(32) int32_t even[kMaddQuads + 8];
    alignas(32) int32_t odd[kMaddQuads + 8];

    // Elements [0, count), zeros behind them up to a whole quad.
    void widen(const int8_t* x, size_t count) {
        size_t quad = 0;
        for (; 4 * (quad + kMaddWidth) <= count; quad += kMaddWidth) {
            store(quad, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 4 * quad)));
        }
        for (; 4 * quad < count; ++quad) {
            uint32_t word = 0;
            std::memcpy(&word, x + 4 * quad, std::min<size_t>(count - 4 * quad, 4));
            const __m128i words = _mm_set1_epi32(static_cast<int>(word));
            even[quad] = _mm_cvtsi128_si32(_mm_srai_epi16(_mm_slli_epi16(words, 8), 8));
            odd[quad] = _mm_cvtsi128_si32(_mm_srai_epi16(words, 8));
        }
    }

  private:
    void store(size_t quad, __m256i words) {
        const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8);
        _mm256_store_si256(reinterpret_cast<__m256i*>(even + quad), low);
        _mm256_store_si256(reinterpret_cast<__m256i*>(odd + quad), _mm256_srai_epi16(words, 8));
    }
};

// Adds the products of some quads to kRows rows x kRegisters registers of `out`.
template <size_t kRows, size_t kRegisters>
void madd_pass(const LaneRow* x,
               const std::byte* weights,
               size_t num_quads,
               const char* fetch,
               size_t fetch_step,
               int32_t* out) {
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    __m256i sums[kRows][kRegisters];
    const auto at = [&](size_t r, size_t c) __attribute__((always_inline)) {
        return reinterpret_cast<__m256i*>(out + r * kPanelColumns + c * kMaddWidth);
    };
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
            sums[r][c] = _mm256_loadu_si256(at(r, c));
        });
    });
    const auto add = [&](size_t quad) __attribute__((always_inline)) {
        __m256i even[kRegisters];
        __m256i odd[kRegisters];
        unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
            const auto* words = reinterpret_cast<const __m256i*>(weights + quad * kQuadBytes) + c;
            even[c] = _mm256_and_si256(_mm256_loadu_si256(words), low_bytes);
            odd[c] = _mm256_srli_epi16(_mm256_loadu_si256(words), 8);
        });
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            const __m256i x_even = _mm256_set1_epi32(x[r].even[quad]);
            const __m256i x_odd = _mm256_set1_epi32(x[r].odd[quad]);
            unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
                const __m256i first = _mm256_madd_epi16(even[c], x_even);
                sums[r][c] = EightWords::added(first, sums[r][c]);
                const __m256i second = _mm256_madd_epi16(odd[c], x_odd);
                sums[r][c] = EightWords::added(second, sums[r][c]);
            });
        });
    };
    size_t quad = 0;
    for (; quad + 2 <= num_quads; quad += 2) {
        __builtin_prefetch(fetch, 0, 3);
        add(quad);
        __builtin_prefetch(fetch + fetch_step, 0, 3);
        add(quad + 1);
        fetch += 2 * fetch_step;
    }
    if (quad < num_quads) add(quad);
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
            _mm256_storeu_si256(at(r, c), sums[r][c]);
        });
    });
}

// All rows over some quads. Each pass fetches its part of the quads behind them.
inline void madd_piece(const Int8TileArguments& a,
                       const LaneRow* x,
                       const std::byte* weights,
                       size_t num_quads) {
    const auto* next = reinterpret_cast<const char*>(weights + num_quads * kQuadBytes);
    if (a.num_rows <= kMaddStreamRows) {
        // As fast as memory, which sees the stream itself.
        return with_rows<kMaddStreamRows>(a.num_rows, [&]<size_t kRows>() {
            madd_pass<kRows, 4>(x, weights, num_quads, next, 0, a.out);
        });
    }
    constexpr size_t kRegisters = 2;
    constexpr size_t kColumns = kRegisters * kMaddWidth;
    const size_t num_groups = (a.num_rows + kMaddRows - 1) / kMaddRows;
    const size_t step = kQuadBytes / (num_groups * kPanelColumns / kColumns);
    for (size_t group = 0; group < num_groups; ++group) {
        const size_t row = group * a.num_rows / num_groups;
        const size_t end = (group + 1) * a.num_rows / num_groups;
        with_rows<kMaddRows>(end - row, [&]<size_t kRows>() {
            for (size_t column = 0; column < kPanelColumns; column += kColumns) {
                int32_t* out = a.out + row * kPanelColumns + column;
                madd_pass<kRows, kRegisters>(
                    x + row, weights + 4 * column, num_quads, next, step, out);
                next += num_quads * step;
            }
        });
    }
}

// Quads of a piece at most, as in tile_avx2.h. With four times as much, three to six rows from
// memory had 0.81 to 0.87 of the speed, eight and twelve 0.9 and 0.94 (Zen 4).
inline size_t quads_of_piece(const Int8TileArguments& a) {
    const bool is_from_memory = a.fetch_ahead.bytes > 0 && a.fetch_next.from == nullptr;
    if (!is_from_memory || a.num_rows <= kMaddStreamRows) return kMaddQuads;
    const size_t near = block_sizes().fetch_near / kQuadBytes / kMaddWidth * kMaddWidth;
    return std::clamp(near, kMaddWidth, kMaddQuads);
}

void int8_madd_tile(const Int8TileArguments& a) {
    LaneRow x[kMaddTileRows];
    for (size_t r = 0; r < a.num_rows; ++r) {
        // Modulo 2^32, as all the sums.
        const uint32_t surplus = 128u * static_cast<uint32_t>(a.row_sum[r]);
        std::fill_n(a.out + r * kPanelColumns, kPanelColumns, static_cast<int32_t>(0u - surplus));
    }
    const size_t piece =
        std::clamp<size_t>(block_sizes().widened / (2 * a.num_rows) / kMaddWidth * kMaddWidth,
                           kMaddWidth,
                           quads_of_piece(a));
    for (size_t k = 0; k < a.depth; k += 4 * piece) {
        const size_t count = std::min(4 * piece, a.depth - k);
        for (size_t r = 0; r < a.num_rows; ++r) x[r].widen(a.x + r * a.x_stride + k, count);
        madd_piece(a, x, a.panel + k * kPanelColumns, (count + 3) / 4);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
