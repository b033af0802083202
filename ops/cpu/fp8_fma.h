// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of few rows with fp8 weights for classes that multiply and add fp32 values: weights are
// expanded in registers, a quad of a column being one word, and the bits are those of unpack_fp8,
// tile and add_block. Included by ops/cpu/avx2/kernels_avx2.cc and kernels_avx512.cc only.
//
// Lanes is what an instruction set makes of it:
//   Floats, Words, kWidth              registers of floats and of 32-bit words
//   load(from), store(to, x), zero(), broadcast(value), fused(a, b, sum), load_words(from)
//   expand<kByte>(words)               the values of one byte of each word
//   broadcast_word(word), low_half(words), high_half(words): bf16 values as floats

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// One panel's sums of kRows rows over a block.
template <typename Lanes, size_t kRows>
class Fp8Block {
  public:
    static constexpr size_t kRegisters = kPanelColumns / Lanes::kWidth;

    // The products of `count` elements of depth.
    [[gnu::always_inline]] Fp8Block(
        const std::byte* values, const Bf16* x, size_t x_stride, size_t count, size_t ahead) {
        for_each([&](size_t, size_t, typename Lanes::Floats & sum)
                     __attribute__((always_inline)) { sum = Lanes::zero(); });
        size_t k = 0;
        for (; k + 4 <= count; k += 4, values += 4 * kPanelColumns) {
            __builtin_prefetch(values + ahead, 0, 3);
            __builtin_prefetch(values + ahead + 64, 0, 3);
            add_pair<0>(values, x + k, x_stride, 2);
            add_pair<2>(values, x + k + 2, x_stride, 2);
        }
        if (k < count) add_pair<0>(values, x + k, x_stride, std::min<size_t>(count - k, 2));
        if (k + 2 < count) add_pair<2>(values, x + k + 2, x_stride, 1);
    }

    // sums [kRows][32] = sums + scale · products.
    [[gnu::always_inline]] void add_to(float* sums, const float* scales, bool goes_on) {
        constexpr size_t kHalf = kPanelColumns / 2;
        const typename Lanes::Floats scale[2] = {Lanes::broadcast(scales[0]),
                                                 Lanes::broadcast(scales[1])};
        for_each([&](
            size_t r, size_t c, typename Lanes::Floats & product) __attribute__((always_inline)) {
            float* to = sums + r * kPanelColumns + c * Lanes::kWidth;
            const auto before = goes_on ? Lanes::load(to) : Lanes::zero();
            Lanes::store(to, Lanes::fused(scale[c * Lanes::kWidth / kHalf], product, before));
        });
    }

  private:
    template <typename Body>
    [[gnu::always_inline]] void for_each(const Body& body) {
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
                body(r, c, products_[r][c]);
            });
        });
    }

    // Elements kByte and kByte + 1 of the quads, or the first one alone.
    template <int kByte>
    [[gnu::always_inline]] void add_pair(const std::byte* values,
                                         const Bf16* x,
                                         size_t x_stride,
                                         size_t count) {
        typename Lanes::Words pairs[kRows];
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            uint32_t pair = 0;
            std::memcpy(&pair, x + r * x_stride, count == 2 ? 4 : 2);
            pairs[r] = Lanes::broadcast_word(pair);
        });
        unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
            const auto words = Lanes::load_words(values + c * Lanes::kWidth * 4);
            const auto first = Lanes::template expand<kByte>(words);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                products_[r][c] = Lanes::fused(Lanes::low_half(pairs[r]), first, products_[r][c]);
            });
        });
        if (count < 2) return;
        unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
            const auto words = Lanes::load_words(values + c * Lanes::kWidth * 4);
            const auto second = Lanes::template expand<kByte + 1>(words);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                products_[r][c] = Lanes::fused(Lanes::high_half(pairs[r]), second, products_[r][c]);
            });
        });
    }

    typename Lanes::Floats products_[kRows][kRegisters];
};

template <typename Lanes, size_t kRows>
void fp8_panel(const Fp8TileArguments& a) {
    const std::byte* values = a.panel;
    const auto* scales = reinterpret_cast<const float*>(a.panel + fp8_values_bytes(a.depth));
    for (size_t k = 0; k < a.depth; k += kFp8BlockEdge, scales += 2) {
        const size_t count = std::min(kFp8BlockEdge, a.depth - k);
        Fp8Block<Lanes, kRows> block(values, a.x + k, a.x_stride, count, a.fetch_ahead.bytes);
        block.add_to(a.out, scales, k > 0);
        values += count * kPanelColumns;
    }
}

template <typename Lanes>
void fp8_tile_fma(const Fp8TileArguments& a) {
    with_rows<Lanes::kFp8Rows>(a.num_rows, [&]<size_t kRows>() { fp8_panel<Lanes, kRows>(a); });
}

}  // namespace
}  // namespace afd::ops::cpu
