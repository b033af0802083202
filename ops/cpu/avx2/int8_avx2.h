// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of int8 weights with vpmaddwd on 16 lanes of 16 bits: each lane pair of a register is two
// of a column's four products, summed to 32 bits. Weights are stored with 128 added, which the row
// sums take back. Included by the kernel files of classes without VNNI.

#include <immintrin.h>

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kMaddRows = 4;
constexpr size_t kMaddColumns = 8;

// Four elements of a row, zeros beyond `count`, four times over.
inline __m256i broadcast_quad_16(const int8_t* x, size_t count) {
    int32_t quad = 0;
    std::memcpy(&quad, x, count);
    return _mm256_cvtepi8_epi16(_mm_set1_epi32(quad));
}

// Column sums of four columns from their two halves each.
inline __m128i fold(__m256i sums) {
    const __m256i folded = _mm256_hadd_epi32(sums, sums);
    return _mm_unpacklo_epi64(_mm256_castsi256_si128(folded), _mm256_extracti128_si256(folded, 1));
}

// kRows rows x 8 columns.
template <size_t kRows>
void madd_columns(const Int8TileArguments& a, size_t first_row, size_t column) {
    __m256i low[kRows];
    __m256i high[kRows];
    for (size_t r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_si256();
    for (size_t k = 0; k < a.depth; k += 4) {
        const auto* weights =
            reinterpret_cast<const __m128i*>(a.panel + k * kPanelColumns) + column / 4;
        const __m256i w_low = _mm256_cvtepu8_epi16(_mm_loadu_si128(weights));
        const __m256i w_high = _mm256_cvtepu8_epi16(_mm_loadu_si128(weights + 1));
        const size_t count = a.depth - k < 4 ? a.depth - k : 4;
        for (size_t r = 0; r < kRows; ++r) {
            const __m256i x = broadcast_quad_16(a.x + (first_row + r) * a.x_stride + k, count);
            low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(w_low, x));
            high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(w_high, x));
        }
    }
    for (size_t r = 0; r < kRows; ++r) {
        const auto sum = static_cast<uint32_t>(a.row_sum[first_row + r]);
        const __m128i surplus = _mm_set1_epi32(static_cast<int32_t>(128u * sum));
        auto* out = reinterpret_cast<__m128i*>(a.out + (first_row + r) * kPanelColumns + column);
        _mm_storeu_si128(out, _mm_sub_epi32(fold(low[r]), surplus));
        _mm_storeu_si128(out + 1, _mm_sub_epi32(fold(high[r]), surplus));
    }
}

void int8_madd_tile(const Int8TileArguments& a) {
    for (size_t column = 0; column < kPanelColumns; column += kMaddColumns) {
        size_t row = 0;
        for (; row + kMaddRows <= a.num_rows; row += kMaddRows) {
            madd_columns<kMaddRows>(a, row, column);
        }
        for (; row < a.num_rows; ++row) madd_columns<1>(a, row, column);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
