// SPDX-License-Identifier: Apache-2.0
#pragma once

// int4, mxfp4 and fp8 panels to bf16 ones, a word of 32 bits being a column: its nibbles or bytes
// are consecutive elements (ops/format/packed_shape.h). With the bits of ops/cpu/weight_kernels.h.
// Included by kernels_*.cc only. kInterleave: bf16_interleave() of the class.
//
// Lanes is what an instruction set makes of it:
//   Floats, Words, kWidth              registers of floats and of words
//   load(from), load_words(from), broadcast(value), multiply(a, b)
//   nibble<kBit>(words)                the int4 number whose four bits begin there, as floats
//   e2m1<kBit>(words)                  the same for e2m1
//   expand<kByte>(words)               the e4m3 value of that byte, as floats
//   round_high(x)                      bf16 in the upper halves, the lower ones being anything
//   bits(x)                            of floats, as words
//   pair(even, odd)                    upper halves of both, the first below
//   store_words(to, words)
//   store_row(to, high)                upper halves of the words of all 32 columns

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"

namespace afd::ops::cpu {
namespace {

template <typename Lanes>
inline constexpr size_t kPanelRegisters = kPanelColumns / Lanes::kWidth;

// Two consecutive elements of all columns, bf16 in the upper halves, to rows k and k + 1 of a
// panel.
template <typename Lanes, size_t kInterleave, typename Words>
[[gnu::always_inline]] inline void store_elements(const Words (&even)[kPanelRegisters<Lanes>],
                                                  const Words (&odd)[kPanelRegisters<Lanes>],
                                                  uint16_t* out,
                                                  bool has_odd) {
    if constexpr (kInterleave == 2) {
        unrolled<kPanelRegisters<Lanes>>([&](size_t c) __attribute__((always_inline)) {
            Lanes::store_words(out + 2 * c * Lanes::kWidth, Lanes::pair(even[c], odd[c]));
        });
    } else {
        Lanes::store_row(out, even);
        if (has_odd) Lanes::store_row(out + kPanelColumns, odd);
    }
}

// What four bits are.
enum class Nibble { kInt4, kE2m1 };

// Whether products with the scale are bf16 as they stand: e2m1 ones, and int4 ones with a scale of
// few significant bits (kInt4LongBf16Bits).
enum class Products { kRounded, kExact };

template <typename Lanes, Nibble kNibble, Products kProducts, int kBit, typename Floats>
[[gnu::always_inline]] inline typename Lanes::Words scaled_nibble(typename Lanes::Words words,
                                                                  Floats scale) {
    if constexpr (kNibble == Nibble::kE2m1) {
        return Lanes::bits(Lanes::multiply(Lanes::template e2m1<kBit>(words), scale));
    } else {
        const auto product = Lanes::multiply(Lanes::template nibble<kBit>(words), scale);
        return kProducts == Products::kExact ? Lanes::bits(product) : Lanes::round_high(product);
    }
}

// Elements 2 · kPair and 2 · kPair + 1 of a step of eight.
template <typename Lanes, size_t kInterleave, Nibble kNibble, Products kProducts, int kPair>
[[gnu::always_inline]] inline void unpack_nibble_pair(const std::byte* step,
                                                      const float* scales,
                                                      size_t count,
                                                      uint16_t* out) {
    constexpr size_t kRegisters = kPanelRegisters<Lanes>;
    if (count <= 2 * kPair) return;
    typename Lanes::Words even[kRegisters];
    typename Lanes::Words odd[kRegisters];
    unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
        const auto words = Lanes::load_words(step + 4 * c * Lanes::kWidth);
        const auto scale = Lanes::load(scales + c * Lanes::kWidth);
        even[c] = scaled_nibble<Lanes, kNibble, kProducts, 4 * kPair>(words, scale);
        odd[c] = scaled_nibble<Lanes, kNibble, kProducts, 16 + 4 * kPair>(words, scale);
    });
    store_elements<Lanes, kInterleave>(
        even, odd, out + 2 * kPair * kPanelColumns, count > 2 * kPair + 1);
}

// The elements of one group, whose first step is at `step`.
template <typename Lanes, size_t kInterleave, Nibble kNibble, Products kProducts>
void unpack_nibble_group(
    const std::byte* step, const float* scales, size_t count, size_t fetch_ahead, uint16_t* out) {
    for (size_t k = 0; k < count; k += 8, step += kInt4StepBytes, out += 8 * kPanelColumns) {
        __builtin_prefetch(step + fetch_ahead, 0, 3);
        __builtin_prefetch(step + fetch_ahead + 64, 0, 3);
        const size_t left = count - k;
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 0>(step, scales, left, out);
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 1>(step, scales, left, out);
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 2>(step, scales, left, out);
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 3>(step, scales, left, out);
    }
}

// The scales of a group, one for each column.
struct GroupScales {
    alignas(64) float values[kPanelColumns];
    Products products = Products::kExact;

    GroupScales(const std::byte* group, bool are_fp16) {
        int any_bits = 0;
        for (size_t j = 0; j < kPanelColumns; ++j) {
            uint16_t bits;
            std::memcpy(&bits, group + j * sizeof bits, sizeof bits);
            any_bits |= bits;
            values[j] = are_fp16 ? to_float(Fp16{bits}) : to_float(Bf16{bits});
        }
        const int long_bits = are_fp16 ? kInt4LongFp16Bits : kInt4LongBf16Bits;
        if ((any_bits & long_bits) != 0) products = Products::kRounded;
    }
};

template <typename Lanes, size_t kInterleave, Nibble kNibble>
void unpack_nibble_words(const UnpackArguments& a) {
    const std::byte* group = a.panel;
    for (size_t first = 0; first < a.depth; first += a.group_size) {
        const GroupScales scales(group, a.has_fp16_scales);
        const size_t count = std::min(a.group_size, a.depth - first);
        const auto unpack =
            scales.products == Products::kExact
                ? unpack_nibble_group<Lanes, kInterleave, kNibble, Products::kExact>
                : unpack_nibble_group<Lanes, kInterleave, kNibble, Products::kRounded>;
        unpack(group + kInt4ScaleBytes,
               scales.values,
               count,
               a.fetch_ahead,
               a.out + first * kPanelColumns);
        group += int4_group_bytes(count);
    }
}

template <typename Lanes, size_t kInterleave>
void unpack_fp8_words(const UnpackFp8Arguments& a) {
    constexpr size_t kRegisters = kPanelRegisters<Lanes>;
    const std::byte* quads = a.values;
    uint16_t* out = a.out;
    for (size_t k = 0; k < a.depth; k += 4, quads += 4 * kPanelColumns, out += 4 * kPanelColumns) {
        __builtin_prefetch(quads + a.fetch_ahead, 0, 3);
        __builtin_prefetch(quads + a.fetch_ahead + 64, 0, 3);
        typename Lanes::Words elements[4][kRegisters];
        unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
            const auto words = Lanes::load_words(quads + 4 * c * Lanes::kWidth);
            elements[0][c] = Lanes::bits(Lanes::template expand<0>(words));
            elements[1][c] = Lanes::bits(Lanes::template expand<1>(words));
            elements[2][c] = Lanes::bits(Lanes::template expand<2>(words));
            elements[3][c] = Lanes::bits(Lanes::template expand<3>(words));
        });
        store_elements<Lanes, kInterleave>(elements[0], elements[1], out, true);
        store_elements<Lanes, kInterleave>(elements[2], elements[3], out + 2 * kPanelColumns, true);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
