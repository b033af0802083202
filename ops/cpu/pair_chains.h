// SPDX-License-Identifier: Apache-2.0
#pragma once

// The sums of class amx by ordinary fused multiply-adds: what tdpbf16ps gives, on processors that
// lack it. Included by kernels_amx_*.cc only.
//
// For one output, a step is up to 16 pairs of elements along the depth:
//   even = odd = 0
//   for each pair: even = fma(a[2k], b[2k], even), odd = fma(a[2k+1], b[2k+1], odd)
//   sum = sum + (even + odd)
// each operation rounded to nearest even, denormal operands and results being zeros of their sign.
// A last step has only the pairs that there are; an odd depth is padded with a zero.
//
// Lanes is what an instruction set makes of it:
//   Floats, kWidth                      a register of floats
//   kRows                               rows of a tile whose chains fit into the registers
//   zero(), load(from), store(to, x), broadcast(value), add(a, b), fused(a, b, sum)
//   widen(bf16s)                        kWidth bf16 values that follow each other
//   even(pairs), odd(pairs)             the first and second elements of kWidth pairs
//   DenormalsAreZero                    while one lives, add and fused treat denormals so

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/packed_shape.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Pairs of one step.
constexpr size_t kStepPairs = 16;

// The second element of a pair; 0 beyond the depth.
inline float second_of_pair(const Bf16* x, size_t pair, size_t depth) {
    return 2 * pair + 1 < depth ? to_float(x[2 * pair + 1]) : 0.0f;
}

// One step's chains of kRows x kColumns registers.
template <typename Lanes, size_t kRows, size_t kColumns>
struct PairChains {
    using Floats = typename Lanes::Floats;

    Floats even[kRows][kColumns];
    Floats odd[kRows][kColumns];

    [[gnu::always_inline]] PairChains() {
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            unrolled<kColumns>([&](size_t c) __attribute__((always_inline)) {
                even[r][c] = odd[r][c] = Lanes::zero();
            });
        });
    }

    [[gnu::always_inline]] void add(size_t row, size_t column, Floats a, Floats b) {
        even[row][column] = Lanes::fused(a, b, even[row][column]);
    }
    [[gnu::always_inline]] void add_odd(size_t row, size_t column, Floats a, Floats b) {
        odd[row][column] = Lanes::fused(a, b, odd[row][column]);
    }
    [[gnu::always_inline]] Floats end(size_t row, size_t column, Floats sum) const {
        return Lanes::add(sum, Lanes::add(even[row][column], odd[row][column]));
    }
};

// kRows rows x two registers of columns.
template <typename Lanes, size_t kRows>
void pair_columns(const TileArguments& a, const Bf16* x, const uint16_t* panel, float* out) {
    constexpr size_t kColumns = 2;
    const size_t num_pairs = (a.depth + 1) / 2;
    const size_t out_stride = a.num_panels * kPanelColumns;
    typename Lanes::Floats sums[kRows][kColumns];
    for (size_t r = 0; r < kRows; ++r) {
        for (size_t c = 0; c < kColumns; ++c) {
            sums[r][c] =
                a.goes_on ? Lanes::load(out + r * out_stride + c * Lanes::kWidth) : Lanes::zero();
        }
    }
    for (size_t first = 0; first < num_pairs; first += kStepPairs) {
        PairChains<Lanes, kRows, kColumns> chains;
        const size_t last = std::min(first + kStepPairs, num_pairs);
        for (size_t pair = first; pair < last; ++pair) {
            const uint16_t* weights = panel + pair * 2 * kPanelColumns;
            const typename Lanes::Floats even[kColumns] = {
                Lanes::even(weights), Lanes::even(weights + 2 * Lanes::kWidth)};
            const typename Lanes::Floats odd[kColumns] = {Lanes::odd(weights),
                                                          Lanes::odd(weights + 2 * Lanes::kWidth)};
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                const Bf16* row = x + r * a.x_stride;
                const auto x_even = Lanes::broadcast(to_float(row[2 * pair]));
                const auto x_odd = Lanes::broadcast(second_of_pair(row, pair, a.depth));
                unrolled<kColumns>([&](size_t c) __attribute__((always_inline)) {
                    chains.add(r, c, x_even, even[c]);
                    chains.add_odd(r, c, x_odd, odd[c]);
                });
            });
        }
        for (size_t r = 0; r < kRows; ++r) {
            for (size_t c = 0; c < kColumns; ++c) sums[r][c] = chains.end(r, c, sums[r][c]);
        }
    }
    for (size_t r = 0; r < kRows; ++r) {
        for (size_t c = 0; c < kColumns; ++c) {
            Lanes::store(out + r * out_stride + c * Lanes::kWidth, sums[r][c]);
        }
    }
}

// Apart from the function that changes how denormals are treated, so that none of its arithmetic
// can be moved out.
template <typename Lanes>
[[gnu::noinline]] void pair_products(const TileArguments& a) {
    for (size_t p = 0; p < a.num_panels; ++p) {
        for (size_t column = 0; column < kPanelColumns; column += 2 * Lanes::kWidth) {
            const uint16_t* panel = a.panel + p * a.panel_elements + 2 * column;
            float* out = a.out + p * kPanelColumns + column;
            const size_t out_stride = a.num_panels * kPanelColumns;
            size_t row = 0;
            for (; row + Lanes::kRows <= a.num_rows; row += Lanes::kRows) {
                pair_columns<Lanes, Lanes::kRows>(
                    a, a.x + row * a.x_stride, panel, out + row * out_stride);
            }
            for (; row < a.num_rows; ++row) {
                pair_columns<Lanes, 1>(a, a.x + row * a.x_stride, panel, out + row * out_stride);
            }
        }
    }
}

template <typename Lanes>
void pair_tile(const TileArguments& a) {
    const typename Lanes::DenormalsAreZero mode;
    pair_products<Lanes>(a);
}

}  // namespace
}  // namespace afd::ops::cpu
