// SPDX-License-Identifier: Apache-2.0
#pragma once

// fp8 panels to bf16 ones with AVX2. Included by ops/cpu/kernels_avx2.cc only.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// The bf16 of byte kByte of eight words, in their low halves.
template <int kByte>
[[gnu::always_inline]] inline __m256i bf16_of_e4m3(__m256i words) {
    const __m256i bytes = _mm256_srli_epi32(words, 8 * kByte);
    const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi32(0x7f));
    const __m256i sign = _mm256_and_si256(bytes, _mm256_set1_epi32(0x80));
    // The exponent's bias grows by 120; the product also normalises subnormals.
    const __m256 scaled = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20)),
                                        _mm256_set1_ps(0x1p120f));
    return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(scaled), 16),
                           _mm256_slli_epi32(sign, 8));
}

// Element kByte of the quads of 32 columns.
template <int kByte>
[[gnu::always_inline]] inline void unpack_row(const __m256i (&quads)[4], uint16_t* out) {
    for (size_t half = 0; half < 2; ++half) {
        // The pack interleaves lanes of 128 bits, the permutation puts them back.
        const __m256i mixed = _mm256_packus_epi32(bf16_of_e4m3<kByte>(quads[2 * half]),
                                                  bf16_of_e4m3<kByte>(quads[2 * half + 1]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out) + half,
                            _mm256_permute4x64_epi64(mixed, 0xd8));
    }
}

void unpack_fp8_avx2(const UnpackFp8Arguments& a) {
    const auto* words = reinterpret_cast<const __m256i*>(a.values);
    uint16_t* out = a.out;
    for (size_t k = 0; k < a.depth; k += 4, words += 4, out += 4 * kPanelColumns) {
        __m256i quads[4];
        for (size_t i = 0; i < 4; ++i) quads[i] = _mm256_loadu_si256(words + i);
        unpack_row<0>(quads, out);
        unpack_row<1>(quads, out + kPanelColumns);
        unpack_row<2>(quads, out + 2 * kPanelColumns);
        unpack_row<3>(quads, out + 3 * kPanelColumns);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
