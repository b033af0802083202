// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of few rows with int4 and mxfp4 weights for classes that multiply and add fp32 values: a
// word is a column's next eight weights, which become floats in registers and meet the rows there.
// The bits are those of unpack_int4, unpack_mxfp4 and tile. Unpacked to a panel first, one row had
// half of this speed. Included by ops/cpu/avx2/kernels_avx2.cc, kernels_avx512.cc and
// ops/cpu/amx/few_int4_rows_amx.h only.
//
// SumOrder: kOneChain, of the elements in order; kSteps, as class amx adds (ops/cpu/pair_chains.h):
// for each 32 elements, a chain of the even and one of the odd ones.
//
// Lanes is that of ops/cpu/fp8_fma.h and ops/cpu/unpack_words.h, with besides:
//   kNibbleRows               rows beyond which unpacking once for all is as fast
//   kNibbleUnits<kRows>       registers of columns whose sums fit beside those of so many rows
//   floats(words)             the same bits

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/unpack_words.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Elements of a word.
constexpr size_t kWordNibbles = 8;
// Elements of depth of which x is floats at a time, and how far apart rows of them are.
constexpr size_t kNibbleDepth = 256;
static_assert(kNibbleDepth % 64 == 0, "pieces end where groups do");

enum class SumOrder { kOneChain, kSteps };

// The sums of kRows rows and kUnits registers of columns.
template <typename Lanes, size_t kRows, size_t kUnits, SumOrder kOrder = SumOrder::kOneChain>
class NibbleSums {
  public:
    using Floats = typename Lanes::Floats;
    using Words = typename Lanes::Words;

    // They begin with what `out` holds, [kRows][32], or with 0.
    [[gnu::always_inline]] NibbleSums(const float* out, bool goes_on) {
        for_each([&](size_t r, size_t c, Floats & sum) __attribute__((always_inline)) {
            sum =
                goes_on ? Lanes::load(out + r * kPanelColumns + c * Lanes::kWidth) : Lanes::zero();
            if constexpr (kOrder == SumOrder::kSteps) even_[r][c] = odd_[r][c] = Lanes::zero();
        });
    }

    // `count` elements of a group, whose first word, scale and zero point of these columns are
    // there; x: rows kNibbleDepth apart. With kSteps, an odd number has a zero behind it in x.
    template <Nibble kNibble, Products kProducts>
    [[gnu::always_inline]] void add(const std::byte* words,
                                    const float* scales,
                                    const float* zeros,
                                    const float* x,
                                    size_t count,
                                    size_t ahead) {
        size_t k = 0;
        for (; k + kWordNibbles <= count; k += kWordNibbles, words += kInt4StepBytes) {
            __builtin_prefetch(words + ahead, 0, 3);
            __builtin_prefetch(words + ahead + 64, 0, 3);
            add_words<kNibble, kProducts, kWordNibbles>(words, scales, zeros, x + k);
            if ((k + kWordNibbles) % kStepNibbles == 0) end_step();
        }
        if (k < count) {
            // A function of its own would take the sums by reference, and all words would store
            // them.
            with_rows<kWordNibbles - 1>(
                count - k, [&]<size_t kLeft>() __attribute__((always_inline)) {
                    constexpr size_t kCount =
                        kOrder == SumOrder::kSteps ? (kLeft + 1) / 2 * 2 : kLeft;
                    add_words<kNibble, kProducts, kCount>(words, scales, zeros, x + k);
                });
        }
        if (count % kStepNibbles != 0) end_step();
    }

    [[gnu::always_inline]] void store(float* out) {
        for_each([&](size_t r, size_t c, Floats & sum) __attribute__((always_inline)) {
            Lanes::store(out + r * kPanelColumns + c * Lanes::kWidth, sum);
        });
    }

  private:
    static constexpr size_t kStepNibbles = 32;

    [[gnu::always_inline]] void end_step() {
        if constexpr (kOrder == SumOrder::kSteps) {
            for_each([&](size_t r, size_t c, Floats & sum) __attribute__((always_inline)) {
                sum = Lanes::add(sum, Lanes::add(even_[r][c], odd_[r][c]));
                even_[r][c] = odd_[r][c] = Lanes::zero();
            });
        }
    }

    template <typename Body>
    [[gnu::always_inline]] void for_each(const Body& body) {
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            unrolled<kUnits>([&](size_t c)
                                 __attribute__((always_inline)) { body(r, c, sums_[r][c]); });
        });
    }

    // The first kCount elements of some words.
    template <Nibble kNibble, Products kProducts, size_t kCount>
    [[gnu::always_inline]] void add_words(const std::byte* from,
                                          const float* scales,
                                          const float* zeros,
                                          const float* x) {
        Words words[kUnits];
        unrolled<kUnits>([&](size_t c) __attribute__((always_inline)) {
            words[c] = Lanes::load_words(from + 4 * c * Lanes::kWidth);
        });
        [&]<size_t... kElement>(std::index_sequence<kElement...>) __attribute__((always_inline)) {
            (add_element<kNibble, kProducts, kElement>(words, scales, zeros, x), ...);
        }
        (std::make_index_sequence<kCount>{});
    }

    template <Nibble kNibble, Products kProducts, size_t kElement>
    [[gnu::always_inline]] void add_element(const Words (&words)[kUnits],
                                            const float* scales,
                                            const float* zeros,
                                            const float* x) {
        constexpr int kBit = kElement / 2 * 4 + kElement % 2 * 16;
        Floats values[kRows];
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            values[r] = Lanes::broadcast(x[r * kNibbleDepth + kElement]);
        });
        unrolled<kUnits>([&](size_t c) __attribute__((always_inline)) {
            const Words bits = scaled_nibble<Lanes, kNibble, kProducts, kBit>(
                words[c], scales + c * Lanes::kWidth, zeros + c * Lanes::kWidth);
            const Floats weight =
                kProducts == Products::kRounded ? Lanes::high_half(bits) : Lanes::floats(bits);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                Floats& chain = chain_of<kElement>(r, c);
                chain = Lanes::fused(values[r], weight, chain);
            });
        });
    }

    template <size_t kElement>
    [[gnu::always_inline]] Floats& chain_of(size_t r, size_t c) {
        if constexpr (kOrder == SumOrder::kOneChain) {
            return sums_[r][c];
        } else {
            return kElement % 2 == 0 ? even_[r][c] : odd_[r][c];
        }
    }

    Floats sums_[kRows][kUnits];
    Floats even_[kRows][kUnits];  // With kSteps, and
    Floats odd_[kRows][kUnits];   // likewise.
};

// kRows rows and kUnits registers of columns from `column` on, over a piece of depth that begins
// with a group: x, rows of floats.
template <typename Lanes, size_t kRows, size_t kUnits, Nibble kNibble>
void nibble_pass(
    const Int4TileArguments& a, const float* x, size_t first, size_t depth, size_t column) {
    float* out = a.out + column;
    const std::byte* group = a.panel + a.groups.offset(first);
    NibbleSums<Lanes, kRows, kUnits> sums(out, first > 0);
    for (size_t k = 0; k < depth; k += a.groups.size) {
        const GroupHead head(group, a.groups);
        const std::byte* words = group + a.groups.head_bytes() + 4 * column;
        const size_t count = std::min(a.groups.size, depth - k);
        const size_t ahead = a.fetch_ahead.bytes;
        // Spelled out: lambdas would store the sums.
        if constexpr (kNibble == Nibble::kE2m1) {
            sums.template add<kNibble, Products::kExact>(
                words, head.scales + column, head.zeros + column, x + k, count, ahead);
        } else if (kNibble == Nibble::kInt4 && head.products == Products::kExact) {
            sums.template add<kNibble, Products::kExact>(
                words, head.scales + column, head.zeros + column, x + k, count, ahead);
        } else if (head.products == Products::kOrdinary) {
            sums.template add<kNibble, Products::kOrdinary>(
                words, head.scales + column, head.zeros + column, x + k, count, ahead);
        } else {
            sums.template add<kNibble, Products::kRounded>(
                words, head.scales + column, head.zeros + column, x + k, count, ahead);
        }
        group += a.groups.bytes(count);
    }
    sums.store(out);
}

template <typename Lanes, size_t kRows, Nibble kNibble>
void nibble_panel(const Int4TileArguments& a) {
    constexpr size_t kUnits = Lanes::template kNibbleUnits<kRows>;
    alignas(64) float floats[kRows * kNibbleDepth];
    for (size_t first = 0; first < a.depth; first += kNibbleDepth) {
        const size_t depth = std::min(kNibbleDepth, a.depth - first);
        for (size_t r = 0; r < kRows; ++r) {
            const Bf16* x = a.x + first + r * a.x_stride;
            for (size_t k = 0; k < depth; ++k) floats[r * kNibbleDepth + k] = to_float(x[k]);
        }
        for (size_t column = 0; column < kPanelColumns; column += kUnits * Lanes::kWidth) {
            nibble_pass<Lanes, kRows, kUnits, kNibble>(a, floats, first, depth, column);
        }
    }
}

template <typename Lanes>
void int4_tile_fma(const Int4TileArguments& a) {
    with_rows<Lanes::kNibbleRows>(a.num_rows, [&]<size_t kRows>() {
        a.is_mxfp4           ? nibble_panel<Lanes, kRows, Nibble::kE2m1>(a)
        : a.groups.has_zeros ? nibble_panel<Lanes, kRows, Nibble::kFromZero>(a)
                             : nibble_panel<Lanes, kRows, Nibble::kInt4>(a);
    });
}

}  // namespace
}  // namespace afd::ops::cpu
