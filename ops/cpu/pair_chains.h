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

// How far ahead of their loads weights from memory are fetched, in bytes of each panel.
constexpr size_t kPairFetchAhead = 1024;

// kRows rows x two registers of columns of kPanels panels.
template <typename Lanes, size_t kRows, size_t kPanels>
class PairColumns {
  public:
    // Of rows from x on, and the columns that begin at `panel` and at `out`.
    PairColumns(const TileArguments& a, const Bf16* x, const uint16_t* panel, float* out)
        : a_(a), x_(x), weights_(panel), out_(out) {
        for_each_sum([&](Floats & sum, float* from) __attribute__((always_inline)) {
            sum = a_.goes_on ? Lanes::load(from) : Lanes::zero();
        });
    }

    [[gnu::always_inline]] void multiply() {
        const size_t whole = a_.depth / kStepDepth * kStepDepth;
        for (size_t k = 0; k < whole; k += kStepDepth) add_step(x_ + k, a_.x_stride, kStepPairs);
        if (whole < a_.depth) add_rest(whole);
        for_each_sum([](Floats & sum, float* to)
                         __attribute__((always_inline)) { Lanes::store(to, sum); });
    }

  private:
    using Floats = typename Lanes::Floats;
    static constexpr size_t kColumns = 2 * kPanels;
    static constexpr size_t kStepDepth = 2 * kStepPairs;

    template <typename Body>
    [[gnu::always_inline]] void for_each_sum(const Body& body) {
        const size_t stride = a_.num_panels * kPanelColumns;
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            unrolled<kColumns>([&](size_t c) __attribute__((always_inline)) {
                const size_t column = c / 2 * kPanelColumns + c % 2 * Lanes::kWidth;
                body(sums_[r][c], out_ + r * stride + column);
            });
        });
    }

    // The weights that follow, and as many pairs of rows `stride` apart.
    [[gnu::always_inline]] void add_step(const Bf16* x, size_t stride, size_t num_pairs) {
        PairChains<Lanes, kRows, kColumns> chains;
        const size_t ahead = a_.fetch_ahead.bytes > 0 ? kPairFetchAhead : 0;
        for (size_t pair = 0; pair < num_pairs; ++pair, x += 2, weights_ += 2 * kPanelColumns) {
            Floats even[kRows];
            Floats odd[kRows];
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                even[r] = Lanes::broadcast_even(x + r * stride);
                odd[r] = Lanes::broadcast_odd(x + r * stride);
            });
            unrolled<kColumns>([&](size_t c) __attribute__((always_inline)) {
                const uint16_t* weights =
                    weights_ + c / 2 * a_.panel_elements + c % 2 * 2 * Lanes::kWidth;
                __builtin_prefetch(reinterpret_cast<const std::byte*>(weights) + ahead, 0, 2);
                const Floats w_even = Lanes::even(weights);
                const Floats w_odd = Lanes::odd(weights);
                unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                    chains.add(r, c, even[r], w_even);
                    chains.add_odd(r, c, odd[r], w_odd);
                });
            });
        }
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            unrolled<kColumns>([&](size_t c) __attribute__((always_inline)) {
                sums_[r][c] = chains.end(r, c, sums_[r][c]);
            });
        });
    }

    // The last step, of fewer pairs; an odd depth is padded.
    void add_rest(size_t first) {
        Bf16 rest[kRows][kStepDepth] = {};
        for (size_t r = 0; r < kRows; ++r) {
            std::copy_n(x_ + r * a_.x_stride + first, a_.depth - first, rest[r]);
        }
        add_step(rest[0], kStepDepth, (a_.depth - first + 1) / 2);
    }

    const TileArguments& a_;
    const Bf16* x_;
    const uint16_t* weights_;
    float* out_;
    Floats sums_[kRows][kColumns];
};

// All rows, and kPanels panels from `first` on.
template <typename Lanes, size_t kPanels>
void pair_panels(const TileArguments& a, size_t first) {
    const size_t stride = a.num_panels * kPanelColumns;
    for (size_t column = 0; column < kPanelColumns; column += 2 * Lanes::kWidth) {
        const uint16_t* panel = a.panel + first * a.panel_elements + 2 * column;
        float* out = a.out + first * kPanelColumns + column;
        for (size_t row = 0; row < a.num_rows; row += Lanes::kRows) {
            with_rows<Lanes::kRows>(std::min(Lanes::kRows, a.num_rows - row), [&]<size_t kRows>() {
                PairColumns<Lanes, kRows, kPanels>(
                    a, a.x + row * a.x_stride, panel, out + row * stride)
                    .multiply();
            });
        }
    }
}

// Apart from the function that changes how denormals are treated, so that none of its arithmetic
// can be moved out. Panels from memory pass in turns: a core reads several streams faster than one.
template <typename Lanes>
[[gnu::noinline]] void pair_products(const TileArguments& a) {
    size_t panel = 0;
    if (a.fetch_ahead.bytes > 0) {
        constexpr size_t kPanels = Lanes::kPanelsInTurn;
        for (; panel + kPanels <= a.num_panels; panel += kPanels) {
            pair_panels<Lanes, kPanels>(a, panel);
        }
    }
    for (; panel < a.num_panels; ++panel) pair_panels<Lanes, 1>(a, panel);
}

template <typename Lanes>
void pair_tile(const TileArguments& a) {
    const typename Lanes::DenormalsAreZero mode;
    pair_products<Lanes>(a);
}

}  // namespace
}  // namespace afd::ops::cpu
