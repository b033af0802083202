// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products with fp8 weights for AVX-512 BF16, which become bf16 values in registers. Included by
// ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/avx512/e4m3_vbmi.h"
#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

void unpack_fp8_pairs(const UnpackFp8Arguments& a) {
    const E4m3Expander expand;
    const std::byte* line = a.values;
    uint16_t* out = a.out;
    for (size_t k = 0; k < a.depth; k += 4, line += 2 * kLineBytes, out += 2 * kPairElements) {
        fetch_own_line<Fetch::kNear>(line, a.fetch_ahead);
        fetch_own_line<Fetch::kNear>(line + kLineBytes, a.fetch_ahead);
        const auto low = expand(line);
        const auto high = expand(line + kLineBytes);
        _mm512_store_si512(out, low.first);
        _mm512_store_si512(out + kPanelColumns, high.first);
        _mm512_store_si512(out + kPairElements, low.second);
        _mm512_store_si512(out + kPairElements + kPanelColumns, high.second);
    }
}

// kRows rows x one panel, block by block, with the bits that unpack_fp8, tile and add_block give.
template <size_t kRows, Fetch kFetch>
class Fp8Rows {
  public:
    explicit Fp8Rows(const Fp8TileArguments& a)
        : x_(a.x),
          x_stride_(a.x_stride),
          line_(a.panel),
          ahead_(a.fetch_ahead.bytes),
          next_(reinterpret_cast<uintptr_t>(a.fetch_next.from)),
          next_rows_(reinterpret_cast<uintptr_t>(a.next_x)),
          next_step_(a.fetch_next.step_bytes) {}

    // The next `count` elements of depth, one block; its two scales.
    [[gnu::always_inline]] void add_block(size_t count, const float* scales) {
        Sums products{};
        size_t k = 0;
        for (; k + kQuad <= count; k += kQuad) {
            const Quad quad = next_quad();
            add_pair(quad.low.first, quad.high.first, x_ + k, broadcast_pair, products);
            add_pair(quad.low.second, quad.high.second, x_ + k + 2, broadcast_pair, products);
        }
        if (k < count) add_tail(count - k, x_ + k, products);
        for (size_t half = 0; half < 2; ++half) {
            const __m512 scale = _mm512_set1_ps(scales[half]);
            for (size_t r = 0; r < kRows; ++r) {
                sums_[half][r] = _mm512_fmadd_ps(scale, products[half][r], sums_[half][r]);
            }
        }
        x_ += count;
    }

    void store(float* out) const {
        for (size_t half = 0; half < 2; ++half) {
            for (size_t r = 0; r < kRows; ++r) {
                _mm512_storeu_ps(out + r * kPanelColumns + half * kPanelColumns / 2,
                                 sums_[half][r]);
            }
        }
    }

  private:
    using Sums = __m512[2][kRows];
    struct Quad {
        E4m3Expander::Pairs low;
        E4m3Expander::Pairs high;
    };
    static constexpr size_t kQuad = 4;

    [[gnu::always_inline]] void fetch_line(const std::byte* line) {
        if constexpr (kFetch == Fetch::kNext) {
            fetch_to_second_level(next_);
            next_ += next_step_;
            fetch_to_second_level(next_rows_);
            next_rows_ += kLineBytes;
        } else {
            fetch_own_line<kFetch>(line, ahead_);
        }
    }

    [[gnu::always_inline]] Quad next_quad() {
        fetch_line(line_);
        fetch_line(line_ + kLineBytes);
        const Quad quad{expand_(line_), expand_(line_ + kLineBytes)};
        line_ += 2 * kLineBytes;
        return quad;
    }

    template <typename Broadcast>
    [[gnu::always_inline]] void add_pair(__m512i low,
                                         __m512i high,
                                         const Bf16* x,
                                         const Broadcast& broadcast_x,
                                         Sums& products) const {
        for (size_t r = 0; r < kRows; ++r) {
            const __m512i value = broadcast_x(x + r * x_stride_);
            products[0][r] = dot_pairs(products[0][r], low, value);
            products[1][r] = dot_pairs(products[1][r], high, value);
        }
    }

    // One to three elements.
    void add_tail(size_t count, const Bf16* x, Sums& products) {
        const Quad quad = next_quad();
        if (count == 1) {
            return add_pair(quad.low.first, quad.high.first, x, broadcast_last, products);
        }
        add_pair(quad.low.first, quad.high.first, x, broadcast_pair, products);
        if (count == 2) return;
        add_pair(quad.low.second, quad.high.second, x + 2, broadcast_last, products);
    }

    const Bf16* x_;
    size_t x_stride_;
    const std::byte* line_;
    size_t ahead_;    // Its own weights are fetched so far ahead.
    uintptr_t next_;  // Others' weights and rows are fetched from here on.
    uintptr_t next_rows_;
    size_t next_step_;
    E4m3Expander expand_;
    Sums sums_{};
};

template <size_t kRows, Fetch kFetch>
void fp8_rows(const Fp8TileArguments& a) {
    Fp8Rows<kRows, kFetch> rows(a);
    const auto* scales = reinterpret_cast<const float*>(a.panel + fp8_values_bytes(a.depth));
    for (size_t k = 0; k < a.depth; k += kFp8BlockEdge, scales += 2) {
        rows.add_block(a.depth - k < kFp8BlockEdge ? a.depth - k : kFp8BlockEdge, scales);
    }
    rows.store(a.out);
}

template <size_t kRows>
void fp8_tile_of(const Fp8TileArguments& a) {
    with_fetch<Fetch::kNearAlone>(a, [&]<Fetch kFetch>() { fp8_rows<kRows, kFetch>(a); });
}

// Rows of one tile: more products would not fit into the registers.
constexpr size_t kFp8TileRows = 8;

void fp8_tile(const Fp8TileArguments& a) {
    with_rows<kFp8TileRows>(a.num_rows, [&]<size_t kRows>() { fp8_tile_of<kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
