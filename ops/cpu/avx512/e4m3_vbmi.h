// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes of e4m3 to bf16 values by two look-ups of vpermi2b among the 128 magnitudes, one for each
// byte of the result. Included by kernels_avx512_vbmi.cc and kernels_avx512_bf16.cc only.

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/tensor/bf16.h"
#include "ops/tensor/e4m3.h"

namespace afd::ops::cpu {
namespace {

struct alignas(64) E4m3Tables {
    std::array<uint8_t, 128> low{};  // Of the bf16 of each magnitude.
    std::array<uint8_t, 128> high{};
    // Where the bytes of the first and of the second pair of each column stand, in low | high.
    std::array<std::array<uint8_t, 64>, 2> pairs{};
};

constexpr E4m3Tables make_e4m3_tables() {
    E4m3Tables tables;
    for (uint8_t i = 0; i < 128; ++i) {
        const uint16_t bits = to_bf16(E4m3{i}).bits;
        tables.low[i] = static_cast<uint8_t>(bits & 0xffu);
        tables.high[i] = static_cast<uint8_t>(bits >> 8);
    }
    for (size_t pair = 0; pair < 2; ++pair) {
        for (size_t i = 0; i < 64; ++i) {
            const size_t source = i / 4 * 4 + 2 * pair + i / 2 % 2;
            tables.pairs[pair][i] = static_cast<uint8_t>(source + i % 2 * 64);
        }
    }
    return tables;
}

// The bf16 values of a line of a panel: two pairs of depth of 16 columns.
class E4m3Expander {
  public:
    struct Pairs {
        __m512i first;
        __m512i second;
    };

    [[gnu::always_inline]] Pairs operator()(const std::byte* line) const {
        const __m512i q = _mm512_load_si512(line);
        const __m512i low = _mm512_permutex2var_epi8(low_[0], q, low_[1]);
        const __m512i magnitude = _mm512_permutex2var_epi8(high_[0], q, high_[1]);
        // magnitude | (q & 0x80)
        const __m512i high = _mm512_ternarylogic_epi32(magnitude, q, sign_, 0xf8);
        return {_mm512_permutex2var_epi8(low, pairs_[0], high),
                _mm512_permutex2var_epi8(low, pairs_[1], high)};
    }

  private:
    static constexpr E4m3Tables kTables = make_e4m3_tables();

    static __m512i load(const uint8_t* bytes) { return _mm512_load_si512(bytes); }

    __m512i low_[2] = {load(&kTables.low[0]), load(&kTables.low[64])};
    __m512i high_[2] = {load(&kTables.high[0]), load(&kTables.high[64])};
    __m512i pairs_[2] = {load(kTables.pairs[0].data()), load(kTables.pairs[1].data())};
    __m512i sign_ = _mm512_set1_epi8(static_cast<char>(0x80));
};

}  // namespace
}  // namespace afd::ops::cpu
