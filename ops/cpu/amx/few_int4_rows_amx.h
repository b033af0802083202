// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of few rows with int4 and mxfp4 panels from memory in class amx, with the vector unit: a
// weight becomes a float in its register and meets the rows there, instead of a bf16 value that a
// tile loads. Included by ops/cpu/amx/few_rows_amx.h only.
//
// What the class takes for zero, denormals, is so for the products with scales as well here, which
// have to be exact or rounded as they are. So a panel with a scale that is denormal, or too large
// for that, is left to the tiles.

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/amx/denormals_avx.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/int4_fma.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/unpack_words.h"

namespace afd::ops::cpu {
namespace {

// Rows at most. On a core of a Granite Rapids, groups of 32 from memory: one row 11.6 GB/s,
// two 9.7, three 8.1, four 7.0, and by way of tiles 6.7; with scales so long that products are
// rounded 8.2, 7.0, 6.3, 5.3 and 5.6. Scales in fp16 are such as a rule.
constexpr size_t kFewInt4Rows = 4;
constexpr size_t kFewRoundedInt4Rows = 2;

inline size_t few_int4_rows(const Int4Groups& groups) {
    return groups.has_zeros || groups.has_fp16_scales ? kFewRoundedInt4Rows : kFewInt4Rows;
}

// Bytes, to the first-level cache. 1 to 8 KiB are as fast.
constexpr size_t kInt4FetchAhead = 2048;

// The head of a group, in floats. GroupHead takes arithmetic for it that denormals being zeros
// disturbs.
struct NibbleHead {
    alignas(64) float scales[kPanelColumns];
    alignas(64) float zeros[kPanelColumns];  // Of a group that has them.
    bool is_exact;                           // Products are Products::kExact,
    bool is_ordinary;  // or kOrdinary. Of the scales' bits, as are_ordinary().

    [[gnu::always_inline]] NibbleHead(const std::byte* group, const Int4Groups& groups) {
        load(group, groups.has_fp16_scales, scales);
        if (groups.has_zeros) load(group + kInt4ScaleBytes, false, zeros);
        const int long_bits = groups.has_fp16_scales ? kInt4LongFp16Bits : kInt4LongBf16Bits;
        is_exact = !groups.has_zeros &&
                   _mm512_test_epi16_mask(_mm512_loadu_si512(group),
                                          _mm512_set1_epi16(static_cast<short>(long_bits))) == 0;
        is_ordinary = are_all_ordinary(scales) && are_all_ordinary(scales + 16);
    }

  private:
    static bool are_all_ordinary(const float* values) {
        constexpr uint32_t kLeast = std::bit_cast<uint32_t>(0x1p-126f);
        constexpr uint32_t kMost = std::bit_cast<uint32_t>(kSplitMost / 256);
        const __m512i magnitudes =
            _mm512_and_si512(_mm512_load_si512(values), _mm512_set1_epi32(0x7fffffff));
        const __m512i above = _mm512_sub_epi32(magnitudes, _mm512_set1_epi32(kLeast));
        const __mmask16 are_numbers =
            _mm512_cmplt_epu32_mask(above, _mm512_set1_epi32(kMost - kLeast));
        return (are_numbers | _mm512_testn_epi32_mask(magnitudes, magnitudes)) == 0xffff;
    }
    static void load(const std::byte* from, bool is_fp16, float* to) {
        for (size_t half = 0; half < 2; ++half) {
            const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half);
            const __m512i bf16 = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
            _mm512_store_ps(to + 16 * half,
                            is_fp16 ? _mm512_cvtph_ps(bits) : _mm512_castsi512_ps(bf16));
        }
    }
};

// Elements [first, first + depth) of a panel; x: rows of floats. False: a scale is not ordinary.
template <size_t kRows, Nibble kNibble>
[[gnu::always_inline]] inline bool add_nibble_piece(const Int4TileArguments& a,
                                                    const float* x,
                                                    size_t first,
                                                    size_t depth) {
    NibbleSums<SixteenWords, kRows, 2, SumOrder::kSteps> sums(a.out, first > 0);
    const std::byte* group = a.panel + a.groups.offset(first);
    for (size_t k = 0; k < depth; k += a.groups.size) {
        const NibbleHead head(group, a.groups);
        if (!head.is_ordinary) return false;
        const std::byte* words = group + a.groups.head_bytes();
        const size_t count = std::min(a.groups.size, depth - k);
        if (kNibble != Nibble::kFromZero && head.is_exact) {
            sums.template add<kNibble, Products::kExact>(
                words, head.scales, head.zeros, x + k, count, kInt4FetchAhead);
        } else {
            sums.template add<kNibble, Products::kOrdinary>(
                words, head.scales, head.zeros, x + k, count, kInt4FetchAhead);
        }
        group += a.groups.bytes(count);
    }
    sums.store(a.out);
    return true;
}

template <size_t kRows, Nibble kNibble>
bool multiply_nibbles(const Int4TileArguments& a) {
    alignas(64) float floats[kRows * kNibbleDepth];
    for (size_t first = 0; first < a.depth; first += kNibbleDepth) {
        const size_t depth = std::min(kNibbleDepth, a.depth - first);
        for (size_t r = 0; r < kRows; ++r) {
            const Bf16* x = a.x + first + r * a.x_stride;
            float* row = floats + r * kNibbleDepth;
            for (size_t k = 0; k < depth; ++k) row[k] = to_float(x[k]);
            if (depth % 2 != 0) row[depth] = 0;
        }
        if (!add_nibble_piece<kRows, kNibble>(a, floats, first, depth)) return false;
    }
    return true;
}

// Apart from the function that changes how denormals are treated.
[[gnu::noinline]] inline bool multiply_few_nibble_rows(const Int4TileArguments& a) {
    bool is_done = false;
    with_rows<kFewInt4Rows>(a.num_rows, [&]<size_t kRows>() {
        is_done = a.is_mxfp4           ? multiply_nibbles<kRows, Nibble::kE2m1>(a)
                  : a.groups.has_zeros ? multiply_nibbles<kRows, Nibble::kFromZero>(a)
                                       : multiply_nibbles<kRows, Nibble::kInt4>(a);
    });
    return is_done;
}

// False: a.out is not what it should be, and others have to do it. REQUIRES: kFewInt4Rows at most.
inline bool amx_few_int4_rows(const Int4TileArguments& a) {
    const VectorDenormalsAreZero mode;
    return multiply_few_nibble_rows(a);
}

}  // namespace
}  // namespace afd::ops::cpu
