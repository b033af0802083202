// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of bf16 weights by fp32 multiply-adds on 8 lanes. Included by
// ops/cpu/avx2/kernels_avx2.cc only.
//
// What makes floats of bf16 must not take the ports of the multiplier (ops/cpu/avx512/
// tile_avx512.h): a register of weights is 16 columns as they lie, of which a shift makes the even
// ones and a mask the odd ones, and sums stand that way until a pass ends; x becomes floats a piece
// of depth ahead, and its values are broadcast by loads alone. With weights and values of x made
// floats one by one, 64 rows and more had 0.45 of the peak.
//
// Of a piece the weights stay in the first-level cache while six rows after six rows pass sixteen
// columns after sixteen: 12 sums, two of weights, one of x in the 16 registers.

#include <immintrin.h>

#include <algorithm>
#include <array>

#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/caches.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// Of one pass.
constexpr size_t kPassRows = 6;
constexpr size_t kPassColumns = 16;
constexpr size_t kTileRows = 2 * kPassRows;
// Elements of depth that are floats at a time, and how far apart rows of them are.
constexpr size_t kFloatsDepth = BlockSizes::kWidenedMax / kTileRows;
static_assert(kFloatsDepth % EightWords::kWidth == 0);

// Elements [0, depth) of some rows as floats, kFloatsDepth apart.
inline void expand_rows(
    const Bf16* x, size_t stride, size_t num_rows, size_t depth, float* floats) {
    for (size_t r = 0; r < num_rows; ++r, x += stride, floats += kFloatsDepth) {
        size_t k = 0;
        for (; k + 8 <= depth; k += 8) {
            const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + k));
            const __m256i words = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
            _mm256_store_si256(reinterpret_cast<__m256i*>(floats + k), words);
        }
        for (; k < depth; ++k) floats[k] = to_float(x[k]);
    }
}

// Sixteen sums by even and odd columns, and back.
struct Columns {
    __m256 even;
    __m256 odd;

    static Columns load(const float* from) {
        const __m256 low = _mm256_loadu_ps(from);
        const __m256 high = _mm256_loadu_ps(from + 8);
        return {in_order(_mm256_shuffle_ps(low, high, 0x88)),
                in_order(_mm256_shuffle_ps(low, high, 0xdd))};
    }
    void store(float* to) const {
        const __m256 low = _mm256_unpacklo_ps(even, odd);
        const __m256 high = _mm256_unpackhi_ps(even, odd);
        _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
        _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }

  private:
    // Shuffles stay within halves of 128 bits.
    static __m256 in_order(__m256 mixed) {
        return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
    }
};

// A pass: some rows and kUnits times sixteen columns over a piece of depth.
template <size_t kUnits>
struct Pass {
    const float* x;  // Rows kFloatsDepth apart.
    size_t depth;
    std::array<const uint16_t*, kUnits> weights;
    std::array<float*, kUnits> out;  // Rows out_stride apart.
    size_t out_stride;
    bool goes_on;
    // Lines that more than kStreamRows rows fetch meanwhile: one at each kFetchEvery elements of
    // depth, fetch_step bytes further for each element; at most 64 in all, so that no line is left
    // out.
    const char* fetch;
    size_t fetch_step;
};

// Elements of depth between two jumps, and between two fetches: a processor's two threads share
// what it decodes, so jumps and fetches cost as much as multiplications where a neighbour is busy.
constexpr size_t kAtOnce = 4;
constexpr size_t kFetchEvery = 2;

// So few rows stream through whole panels, which the processor fetches by itself. One and two rows
// read at 1.1 and 1.0 of a plain read so (Zen 4), at 0.8 to 1.0 and 0.8 with fetches 4 KiB ahead,
// and both at 0.8 with those of the next part of a panel, as more rows fetch.
constexpr size_t kStreamRows = 2;

template <size_t kRows, size_t kUnits, int kLocality>
void run_pass(const Pass<kUnits>& p) {
    Columns sums[kRows][kUnits];
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        unrolled<kUnits>([&](size_t u) __attribute__((always_inline)) {
            sums[r][u] = p.goes_on ? Columns::load(p.out[u] + r * p.out_stride)
                                   : Columns{EightWords::zero(), EightWords::zero()};
        });
    });
    const auto add = [&](size_t k) __attribute__((always_inline)) {
        unrolled<kUnits>([&](size_t u) __attribute__((always_inline)) {
            const __m256i words = EightWords::load_words(
                reinterpret_cast<const std::byte*>(p.weights[u] + k * kPanelColumns));
            const __m256 even = EightWords::low_half(words);
            const __m256 odd = EightWords::high_half(words);
            unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
                const __m256 value = EightWords::broadcast(p.x[r * kFloatsDepth + k]);
                sums[r][u].even = EightWords::fused(value, even, sums[r][u].even);
                sums[r][u].odd = EightWords::fused(value, odd, sums[r][u].odd);
            });
        });
    };
    [[maybe_unused]] const char* fetch = p.fetch;
    size_t k = 0;
    for (; k + kAtOnce <= p.depth; k += kAtOnce) {
        unrolled<kAtOnce / kFetchEvery>([&](size_t i) __attribute__((always_inline)) {
            if constexpr (kRows > kStreamRows) {
                __builtin_prefetch(fetch, 0, kLocality);
                fetch += kFetchEvery * p.fetch_step;
            }
            unrolled<kFetchEvery>([&](size_t j) __attribute__((always_inline)) {
                add(k + i * kFetchEvery + j);
            });
        });
    }
    for (; k < p.depth; ++k) add(k);
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        unrolled<kUnits>([&](size_t u) __attribute__((always_inline)) {
            sums[r][u].store(p.out[u] + r * p.out_stride);
        });
    });
}

// The passes of a tile, in their order, over one piece of depth. Few rows take more columns at
// once, so that eight sums and more hide the latency of the adder.
class PiecePasses {
  public:
    PiecePasses(const TileArguments& a, const float* x, size_t first, size_t depth)
        : a_(a), x_(x), first_(first), depth_(depth) {}

    void run() {
        if (a_.num_rows == 1) return run_panels<1>();
        if (a_.num_rows == 2) return run_panels<2>();
        const size_t num_groups = a_.num_rows > kPassRows ? 2 : 1;
        num_parts_ = num_groups * kPanelColumns / kPassColumns;
        for (size_t p = 0; p < a_.num_panels; ++p) {
            part_ = 0;
            for (size_t group = 0; group < num_groups; ++group) {
                const size_t row = group * a_.num_rows / num_groups;
                const size_t end = (group + 1) * a_.num_rows / num_groups;
                with_rows<kPassRows>(end - row, [&]<size_t kRows>() {
                    for (size_t c = 0; c < kPanelColumns; c += kPassColumns, ++part_) {
                        run<kRows, 1>(row, At{p, c});
                    }
                });
            }
        }
    }

  private:
    struct At {
        size_t panel;
        size_t column;
    };

    const uint16_t* weights(At at) const {
        return a_.panel + at.panel * a_.panel_elements + first_ * kPanelColumns + at.column;
    }
    float* out(size_t row, At at) const {
        return a_.out + (row * a_.num_panels + at.panel) * kPanelColumns + at.column;
    }

    // One row takes two panels at once as long as there are two, two rows one.
    template <size_t kRows>
    void run_panels() {
        size_t p = 0;
        for (; kRows == 1 && p + 2 <= a_.num_panels; p += 2) run<kRows, 4>(0, At{p, 0});
        for (; p < a_.num_panels; ++p) run<kRows, 2>(0, At{p, 0});
    }

    // kUnits from there on, which may go on in the next panel.
    template <size_t kRows, size_t kUnits>
    void run(size_t row, At first) {
        Pass<kUnits> pass;
        pass.x = x_ + row * kFloatsDepth;
        pass.depth = depth_;
        for (size_t u = 0; u < kUnits; ++u) {
            const size_t column = first.column + u * kPassColumns;
            const At at{first.panel + column / kPanelColumns, column % kPanelColumns};
            pass.weights[u] = weights(at);
            pass.out[u] = out(row, at);
        }
        pass.out_stride = a_.num_panels * kPanelColumns;
        pass.goes_on = a_.goes_on || first_ > 0;
        set_fetch(first.panel, pass);
        const bool is_near =
            a_.fetch_next.from == nullptr && !processor_caches().is_filled_by_second_level;
        is_near ? run_pass<kRows, kUnits, 3>(pass) : run_pass<kRows, kUnits, 2>(pass);
    }

    // Each pass its part: of the own panel's next piece, or of what is used after this panel.
    template <size_t kUnits>
    void set_fetch(size_t panel, Pass<kUnits>& pass) const {
        if (a_.fetch_next.from == nullptr) {
            constexpr size_t kStep = kPanelColumns * sizeof(uint16_t);
            const auto* next = reinterpret_cast<const char*>(weights({panel, 0})) + depth_ * kStep;
            pass.fetch_step = kStep / num_parts_;
            pass.fetch = next + part_ * depth_ * pass.fetch_step;
        } else {
            // A step of TileArguments is a pair.
            const size_t bytes = (a_.fetch_next.step_bytes + 1) / 2;
            pass.fetch_step = (bytes + num_parts_ - 1) / num_parts_;
            pass.fetch = reinterpret_cast<const char*>(a_.fetch_next.from) + first_ * bytes +
                         part_ * depth_ * pass.fetch_step;
        }
    }

    const TileArguments& a_;
    const float* x_;
    size_t first_;
    size_t depth_;
    size_t num_parts_ = 1;
    size_t part_ = 0;
};

// Elements of depth of a piece at most. Of a panel that comes from memory, what is used and what
// comes leave the first-level cache room for rows and sums: with four times as much, three to six
// rows had 0.7 to 0.8 of the speed, eight and twelve 0.92 to 0.97 (Zen 4). In cache, a panel costs
// 2 % more in such pieces.
inline size_t depth_of_piece(const TileArguments& a) {
    const bool is_from_memory = a.fetch_ahead.bytes > 0 && a.fetch_next.from == nullptr;
    if (!is_from_memory || a.num_rows <= kStreamRows) return kFloatsDepth;
    const size_t near = block_sizes().fetch_near / (kPanelColumns * sizeof(uint16_t)) / 8 * 8;
    return std::clamp<size_t>(near, 8, kFloatsDepth);
}

// Every pass adds in the same order, k ascending in one chain for each column, so that a row's bits
// do not depend on how many rows are beside it.
void tile(const TileArguments& a) {
    alignas(32) float floats[BlockSizes::kWidenedMax];
    const size_t piece_depth =
        std::clamp<size_t>(block_sizes().widened / a.num_rows / 8 * 8, 8, depth_of_piece(a));
    for (size_t first = 0; first < a.depth; first += piece_depth) {
        const size_t depth = std::min(piece_depth, a.depth - first);
        expand_rows(a.x + first, a.x_stride, a.num_rows, depth, floats);
        PiecePasses(a, floats, first, depth).run();
    }
}

}  // namespace
}  // namespace afd::ops::cpu
