// SPDX-License-Identifier: Apache-2.0
#pragma once

// Registers whose lanes are heads, and queries turned into them: a pair of elements of all heads
// side by side. Compiled into the kernel files of classes avx512-bf16 and amx only.

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kHeadLanes = 16;
static_assert(kHeadLanes == kHeadsMax);

constexpr size_t kLineElements = kLineBytes / sizeof(Bf16);

// sum + a · b of pairs, lane by lane.
inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

inline int32_t pair_at(const Bf16* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    return pair;
}

// Turns sixteen rows of sixteen lanes into their columns.
inline void transpose(__m512i (&rows)[16]) {
    __m512i halves[16];
    for (size_t i = 0; i < 16; i += 2) {
        halves[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        halves[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // Quarter b of quarters[4 * i + j]: column 4 * b + j of rows 4 * i ... 4 * i + 3.
    __m512i quarters[16];
    for (size_t i = 0; i < 16; i += 4) {
        quarters[i] = _mm512_unpacklo_epi64(halves[i], halves[i + 2]);
        quarters[i + 1] = _mm512_unpackhi_epi64(halves[i], halves[i + 2]);
        quarters[i + 2] = _mm512_unpacklo_epi64(halves[i + 1], halves[i + 3]);
        quarters[i + 3] = _mm512_unpackhi_epi64(halves[i + 1], halves[i + 3]);
    }
    constexpr int kEven = 0x88;
    constexpr int kOdd = 0xdd;
    for (size_t j = 0; j < 4; ++j) {
        const __m512i* const q = quarters + j;
        const __m512i even_top = _mm512_shuffle_i32x4(q[0], q[4], kEven);
        const __m512i even_bottom = _mm512_shuffle_i32x4(q[8], q[12], kEven);
        const __m512i odd_top = _mm512_shuffle_i32x4(q[0], q[4], kOdd);
        const __m512i odd_bottom = _mm512_shuffle_i32x4(q[8], q[12], kOdd);
        rows[j] = _mm512_shuffle_i32x4(even_top, even_bottom, kEven);
        rows[4 + j] = _mm512_shuffle_i32x4(odd_top, odd_bottom, kEven);
        rows[8 + j] = _mm512_shuffle_i32x4(even_top, even_bottom, kOdd);
        rows[12 + j] = _mm512_shuffle_i32x4(odd_top, odd_bottom, kOdd);
    }
}

// The queries of all heads, pair by pair: [pair][kHeadLanes][2]; lanes without a head are 0.
inline void turn_queries(
    const Bf16* query, size_t stride, size_t num_heads, size_t count, Bf16* turned) {
    for (size_t i = 0; i < count; i += kLineElements) {
        const size_t left = std::min(count - i, kLineElements);
        const auto mask = static_cast<__mmask32>(~uint32_t{0} >> (kLineElements - left));
        __m512i rows[kHeadLanes];
        for (size_t h = 0; h < kHeadLanes; ++h) {
            rows[h] = h < num_heads ? _mm512_maskz_loadu_epi16(mask, query + h * stride + i)
                                    : _mm512_setzero_si512();
        }
        transpose(rows);
        for (size_t pair = 0; pair < (left + 1) / 2; ++pair) {
            _mm512_store_si512(turned + (i + 2 * pair) * kHeadLanes, rows[pair]);
        }
    }
}

// Elements of turned queries.
inline size_t turned_size(size_t count) {
    return (count + 1) / 2 * 2 * kHeadLanes;
}

}  // namespace
}  // namespace afd::ops::cpu
