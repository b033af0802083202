// SPDX-License-Identifier: Apache-2.0
#pragma once

// int4, mxfp4 and fp8 panels to bf16 ones, a word of 32 bits being a column: its nibbles or bytes
// are consecutive elements (ops/format/packed_shape.h). With the bits of ops/cpu/weight_kernels.h.
// Included by kernels_*.cc only. kInterleave: bf16_interleave() of the class.
//
// Lanes is what an instruction set makes of it:
//   Floats, Words, kWidth              registers of floats and of words
//   load(from), load_words(from), broadcast(value), multiply(a, b), subtract(a, b)
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

#include "ops/cpu/bf16_split.h"
#include "ops/cpu/int4_head.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"

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

// What four bits are. kFromZero: int4 less a zero point.
enum class Nibble { kInt4, kFromZero, kE2m1 };

// What products with the scales are. kExact: bf16 as they stand: e2m1 ones, and int4 ones without
// zero point and with a scale of few significant bits (kInt4LongBf16Bits). kOrdinary: to be
// rounded, and all of them what rounded_number() takes, which is half of the work.
enum class Products { kRounded, kOrdinary, kExact };

// Whether products with them are Products::kOrdinary: the other factor is 0 or from 1 to 135, a
// nibble less a zero point at most.
[[gnu::always_inline]] inline bool are_ordinary(const float (&scales)[kPanelColumns]) {
    size_t num_ordinary = 0;
    for (const float scale : scales) {
        const float magnitude = scale < 0 ? -scale : scale;
        const bool is_number = magnitude >= 0x1p-126f && magnitude < kSplitMost / 256;
        num_ordinary += is_number || magnitude == 0 ? 1 : 0;
    }
    return num_ordinary == kPanelColumns;
}

// The head of a group, in floats.
struct GroupHead {
    alignas(64) float scales[kPanelColumns];
    alignas(64) float zeros[kPanelColumns];  // Of a group that has them.
    Products products = Products::kExact;

    [[gnu::always_inline]] GroupHead(const std::byte* group, const Int4Groups& groups) {
        int any_bits = 0;
        for (size_t j = 0; j < kPanelColumns; ++j) {
            any_bits |= int4_scale_bits(group, j);
            scales[j] = int4_scale_at(group, groups, j);
        }
        const int long_bits = groups.has_fp16_scales ? kInt4LongFp16Bits : kInt4LongBf16Bits;
        if (groups.has_zeros || (any_bits & long_bits) != 0) {
            products = are_ordinary(scales) ? Products::kOrdinary : Products::kRounded;
        }
        if (!groups.has_zeros) return;
        for (size_t j = 0; j < kPanelColumns; ++j) zeros[j] = int4_zero_at(group, groups, j);
    }
};

// What these bits of the words of some columns stand for, with their scales and zero points.
template <typename Lanes, Nibble kNibble, Products kProducts, int kBit>
[[gnu::always_inline]] inline typename Lanes::Words scaled_nibble(typename Lanes::Words words,
                                                                  const float* scales,
                                                                  const float* zeros) {
    const auto scale = Lanes::load(scales);
    if constexpr (kNibble == Nibble::kE2m1) {
        return Lanes::bits(Lanes::multiply(Lanes::template e2m1<kBit>(words), scale));
    } else {
        auto number = Lanes::template nibble<kBit>(words);
        if constexpr (kNibble == Nibble::kFromZero) {
            number = Lanes::subtract(number, Lanes::load(zeros));
        }
        const auto product = Lanes::multiply(number, scale);
        if constexpr (kProducts == Products::kRounded) return Lanes::round_high(product);
        return Lanes::bits(kProducts == Products::kExact ? product
                                                         : rounded_number<Lanes>(product));
    }
}

// Elements 2 · kPair and 2 · kPair + 1 of a step of eight.
template <typename Lanes, size_t kInterleave, Nibble kNibble, Products kProducts, int kPair>
[[gnu::always_inline]] inline void unpack_nibble_pair(const std::byte* step,
                                                      const GroupHead& head,
                                                      size_t count,
                                                      uint16_t* out) {
    constexpr size_t kRegisters = kPanelRegisters<Lanes>;
    if (count <= 2 * kPair) return;
    typename Lanes::Words even[kRegisters];
    typename Lanes::Words odd[kRegisters];
    unrolled<kRegisters>([&](size_t c) __attribute__((always_inline)) {
        const auto words = Lanes::load_words(step + 4 * c * Lanes::kWidth);
        const size_t column = c * Lanes::kWidth;
        const float* scales = head.scales + column;
        const float* zeros = head.zeros + column;
        even[c] = scaled_nibble<Lanes, kNibble, kProducts, 4 * kPair>(words, scales, zeros);
        odd[c] = scaled_nibble<Lanes, kNibble, kProducts, 16 + 4 * kPair>(words, scales, zeros);
    });
    store_elements<Lanes, kInterleave>(
        even, odd, out + 2 * kPair * kPanelColumns, count > 2 * kPair + 1);
}

// The elements of one group, whose first step is at `step`.
template <typename Lanes, size_t kInterleave, Nibble kNibble, Products kProducts>
void unpack_nibble_group(
    const std::byte* step, const GroupHead& head, size_t count, size_t fetch_ahead, uint16_t* out) {
    for (size_t k = 0; k < count; k += 8, step += kInt4StepBytes, out += 8 * kPanelColumns) {
        __builtin_prefetch(step + fetch_ahead, 0, 3);
        __builtin_prefetch(step + fetch_ahead + 64, 0, 3);
        const size_t left = count - k;
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 0>(step, head, left, out);
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 1>(step, head, left, out);
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 2>(step, head, left, out);
        unpack_nibble_pair<Lanes, kInterleave, kNibble, kProducts, 3>(step, head, left, out);
    }
}

template <typename Lanes, size_t kInterleave, Nibble kNibble>
void unpack_nibble_words(const UnpackArguments& a) {
    if constexpr (kNibble == Nibble::kInt4) {
        if (a.groups.has_zeros)
            return unpack_nibble_words<Lanes, kInterleave, Nibble::kFromZero>(a);
    }
    const std::byte* group = a.panel;
    for (size_t first = 0; first < a.depth; first += a.groups.size) {
        const GroupHead head(group, a.groups);
        const size_t count = std::min(a.groups.size, a.depth - first);
        const auto unpack =
            head.products == Products::kExact
                ? unpack_nibble_group<Lanes, kInterleave, kNibble, Products::kExact>
            : head.products == Products::kOrdinary
                ? unpack_nibble_group<Lanes, kInterleave, kNibble, Products::kOrdinary>
                : unpack_nibble_group<Lanes, kInterleave, kNibble, Products::kRounded>;
        unpack(group + a.groups.head_bytes(),
               head,
               count,
               a.fetch_ahead,
               a.out + first * kPanelColumns);
        group += a.groups.bytes(count);
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
