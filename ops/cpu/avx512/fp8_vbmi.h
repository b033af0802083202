// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products with fp8 weights by fp32 multiply-adds on 16 lanes, with the bits of ops/cpu/fp8_fma.h
// and ops/cpu/unpack_words.h. These multiply by a power of two, for which a subnormal weight is an
// operand that an Intel processor makes a detour of 130 cycles for; what is looked up has none.
// Included by ops/cpu/avx512/kernels_avx512_vbmi.cc only.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/cpu/avx512/e4m3_vbmi.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/weight_fetch.h"
#include "ops/format/packed_shape.h"
#include "ops/format/weight_format.h"

namespace afd::ops::cpu {
namespace {

// Rows of a tile: their products, a quad's weights and the tables are in registers. A product of
// more rows unpacks panels, so that these are all of it, and there is no next panel to fetch.
constexpr size_t kFp8VbmiRows = 8;

constexpr size_t kQuad = 4;

// A quad of depth of all columns as floats.
struct QuadFloats {
    __m512 low[kQuad];
    __m512 high[kQuad];

    [[gnu::always_inline]] QuadFloats(const E4m3Expander& expand, const std::byte* line) {
        widen(expand(line), low);
        widen(expand(line + kLineBytes), high);
    }

  private:
    [[gnu::always_inline]] static void widen(const E4m3Expander::Pairs& pairs,
                                             __m512 (&floats)[kQuad]) {
        floats[0] = SixteenWords::low_half(pairs.first);
        floats[1] = SixteenWords::high_half(pairs.first);
        floats[2] = SixteenWords::low_half(pairs.second);
        floats[3] = SixteenWords::high_half(pairs.second);
    }
};

// Products of kRows rows and one block of depth, both halves of the columns.
template <size_t kRows>
struct BlockSums {
    __m512 low[kRows];
    __m512 high[kRows];

    [[gnu::always_inline]] BlockSums() {
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            low[r] = high[r] = _mm512_setzero_ps();
        });
    }
    // The first `count` elements of a quad; x: of the rows, kFp8BlockEdge apart.
    [[gnu::always_inline]] void add(const QuadFloats& quad, const float* x, size_t count) {
        unrolled<kQuad>([&](size_t e) __attribute__((always_inline)) {
            if (e >= count) return;
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                const __m512 value = _mm512_set1_ps(x[r * kFp8BlockEdge + e]);
                low[r] = _mm512_fmadd_ps(value, quad.low[e], low[r]);
                high[r] = _mm512_fmadd_ps(value, quad.high[e], high[r]);
            });
        });
    }
    // sums [kRows][32] = sums + scale · products.
    [[gnu::always_inline]] void add_to(float* sums, const float* scales, bool goes_on) const {
        const __m512 scale_low = _mm512_set1_ps(scales[0]);
        const __m512 scale_high = _mm512_set1_ps(scales[1]);
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            float* const to = sums + r * kPanelColumns;
            const __m512 zero = _mm512_setzero_ps();
            const __m512 before_low = goes_on ? _mm512_loadu_ps(to) : zero;
            const __m512 before_high = goes_on ? _mm512_loadu_ps(to + 16) : zero;
            _mm512_storeu_ps(to, _mm512_fmadd_ps(scale_low, low[r], before_low));
            _mm512_storeu_ps(to + 16, _mm512_fmadd_ps(scale_high, high[r], before_high));
        });
    }
};

template <size_t kRows, Fetch kFetch>
void fp8_rows_vbmi(const Fp8TileArguments& a) {
    const E4m3Expander expand;
    alignas(64) float floats[kRows * kFp8BlockEdge];
    const std::byte* line = a.panel;
    const auto* scales = reinterpret_cast<const float*>(a.panel + fp8_values_bytes(a.depth));
    for (size_t first = 0; first < a.depth; first += kFp8BlockEdge, scales += 2) {
        const size_t count = std::min(kFp8BlockEdge, a.depth - first);
        for (size_t r = 0; r < kRows; ++r) {
            const Bf16* x = a.x + r * a.x_stride + first;
            for (size_t k = 0; k < count; k += 16) {
                _mm512_store_ps(floats + r * kFp8BlockEdge + k, load_values(x + k, count - k));
            }
        }
        BlockSums<kRows> products;
        const auto next_quad = [&]() __attribute__((always_inline)) {
            if constexpr (kFetch != Fetch::kNext) {
                fetch_own_line<kFetch>(line, a.fetch_ahead.bytes);
                fetch_own_line<kFetch>(line + kLineBytes, a.fetch_ahead.bytes);
            }
            const QuadFloats quad(expand, line);
            line += 2 * kLineBytes;
            return quad;
        };
        size_t k = 0;
        for (; k + kQuad <= count; k += kQuad) products.add(next_quad(), floats + k, kQuad);
        if (k < count) products.add(next_quad(), floats + k, count - k);
        products.add_to(a.out, scales, first > 0);
    }
}

void fp8_tile_vbmi(const Fp8TileArguments& a) {
    with_rows<kFp8VbmiRows>(a.num_rows, [&]<size_t kRows>() {
        with_fetch(a, [&]<Fetch kFetch>() { fp8_rows_vbmi<kRows, kFetch>(a); });
    });
}

void unpack_fp8_vbmi(const UnpackFp8Arguments& a) {
    alignas(64) constexpr auto kColumns = [] {
        std::array<std::array<uint16_t, kPanelColumns>, 2> places{};
        for (size_t i = 0; i < kPanelColumns; ++i) {
            places[0][i] = static_cast<uint16_t>(2 * i);
            places[1][i] = static_cast<uint16_t>(2 * i + 1);
        }
        return places;
    }();
    const __m512i even = _mm512_loadu_si512(kColumns[0].data());
    const __m512i odd = _mm512_loadu_si512(kColumns[1].data());
    const E4m3Expander expand;
    const std::byte* line = a.values;
    uint16_t* out = a.out;
    for (size_t k = 0; k < a.depth; k += kQuad, line += 2 * kLineBytes) {
        fetch_own_line<Fetch::kNear>(line, a.fetch_ahead);
        fetch_own_line<Fetch::kNear>(line + kLineBytes, a.fetch_ahead);
        const auto low = expand(line);
        const auto high = expand(line + kLineBytes);
        for (const auto& [from_low, from_high] :
             {std::pair{low.first, high.first}, std::pair{low.second, high.second}}) {
            for (const __m512i columns : {even, odd}) {
                _mm512_store_si512(out, _mm512_permutex2var_epi16(from_low, columns, from_high));
                out += kPanelColumns;
            }
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
