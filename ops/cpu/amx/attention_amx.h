// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of some heads with AMX, in the order of ops/cpu/attend_pairs.h. Included
// by ops/cpu/amx/kernels_amx.cc only.
//
// Keys lie row by row and are A as they are, 16 keys by 32 elements; queries are B, turned into
// pairs of heads once a token: scores come out as [key][head], a head's softmax being one lane. For
// the weighted sum the probabilities are A, a row for each head, and values are B, whose rows are
// interleaved by twos, 32 columns at a time, once for all heads.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "ops/cpu/amx/even_steps.h"
#include "ops/cpu/amx/padded_rows_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/avx512/quotient_avx512.h"
#include "ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/softmax_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

constexpr size_t kStepElements = 32;  // Of a key, or positions, in one product.
constexpr size_t kPairsOfHeadsBytes = 2 * kHeadLanes * sizeof(Bf16);
constexpr size_t kFetchesOfSums = 4;  // Steps of NextRows for 32 columns of 32 values.

inline void fetch_amx(const void* at) {
    __builtin_prefetch(at, 0, 2);
}

// To the first-level cache.
inline void fetch_near_amx(const void* at) {
    __builtin_prefetch(at, 0, 3);
}

// The rows of the next block, asked for a few lines at a time from the begin of this one to its
// end: a core waits for about twenty lines at once, and the loads of this block wait behind them.
class NextRows {
  public:
    // In num_steps steps.
    NextRows(const HeadsState& s, const AttendBlock& b, size_t num_steps)
        : rows_{std::as_bytes(std::span(b.next_ckv, b.num_next * s.latent)),
                std::as_bytes(std::span(b.next_kr, b.num_next * s.rope)),
                b.afterwards} {
        size_t num_lines = 0;
        for (const auto& rows : rows_) num_lines += (rows.size() + kCacheLine - 1) / kCacheLine;
        lines_ = EvenSteps(num_lines, num_steps);
    }

    [[gnu::always_inline]] void step() {
        lines_.step([this] { fetch_line(); });
    }

  private:
    [[gnu::always_inline]] void fetch_line() {
        while (at_ >= rows_[array_].size()) {
            if (array_ + 1 == rows_.size()) return;
            ++array_;
            at_ = 0;
        }
        fetch_amx(rows_[array_].data() + at_);
        at_ += kCacheLine;
    }

    std::array<std::span<const std::byte>, 3> rows_;
    size_t array_ = 0;
    size_t at_ = 0;
    EvenSteps lines_;
};

// One part of the keys of a block: the latent one or the rotated one.
struct KeyPart {
    const Bf16* query;  // [pair][kHeadLanes][2]
    const Bf16* keys;   // Rows of `count`
    size_t count;
};

// Sums of kFull tiles of 16 keys, and of one more with the `rest` left over, onto scores.
template <typename Unit, size_t kFull>
class ScoreTiles {
  public:
    ScoreTiles(const HeadsState& s, size_t rest, NextRows& next)
        : s_(s), rest_(rest), next_(next) {}

    void add(const KeyPart& part, bool goes_on) const {
        const size_t num_steps = part.count / kStepElements;
        const size_t left = part.count % kStepElements;
        const size_t stride = part.count * sizeof(Bf16);
        if (num_steps > 0) {
            begin(kTileGroups, goes_on);
            for (size_t step = 0; step < num_steps; ++step) {
                const size_t first = step * kStepElements;
                add_step(part.query + first * kHeadLanes, part.keys + first, stride);
            }
            end();
        }
        if (left == 0) return;
        const size_t first = num_steps * kStepElements;
        const PaddedRows<kAttentionBlock> padded(
            reinterpret_cast<const std::byte*>(part.keys + first),
            stride,
            kFull * kTileRows + rest_,
            left * sizeof(Bf16));
        begin((left + 1) / 2, goes_on || num_steps > 0);
        add_step(part.query + first * kHeadLanes, padded.row(0), kTileRowBytes);
        end();
    }

  private:
    static constexpr int kRest = static_cast<int>(kFull);  // Its tile of C; none where kFull is 4.

    void begin(size_t pairs, bool goes_on) const {
        TileConfiguration configuration;
        for (size_t c = 0; c < kFull; ++c) configuration.set(c, kTileRows, kTileRowBytes);
        if constexpr (kRest < 4) configuration.set(kFull, rest_, kTileRowBytes);
        configuration.set(4, kFull > 0 ? kTileRows : 0, pairs * 4);
        configuration.set(5, rest_, pairs * 4);
        configuration.set(6, pairs, kTileRowBytes);
        Unit::configure(configuration);
        for_each_sum([&]<int kTile>() {
            if (goes_on) {
                Unit::template load<kTile>(scores(kTile), kPairsOfHeadsBytes);
            } else {
                Unit::template zero<kTile>();
            }
        });
    }

    void end() const {
        for_each_sum(
            [&]<int kTile>() { Unit::template store<kTile>(scores(kTile), kPairsOfHeadsBytes); });
    }

    template <typename Body>
    void for_each_sum(const Body& body) const {
        [&]<int... kTile>(std::integer_sequence<int, kTile...>) {
            (body.template operator()<kTile>(), ...);
        }
        (std::make_integer_sequence<int, kRest>{});
        if constexpr (kRest < 4) {
            if (rest_ > 0) body.template operator()<kRest>();
        }
    }

    float* scores(size_t tile) const { return s_.scores + tile * kTileRows * kHeadLanes; }

    void add_step(const Bf16* query, const void* keys, size_t stride) const {
        const auto* rows = static_cast<const std::byte*>(keys);
        Unit::template load<6>(query, kPairsOfHeadsBytes);
        [&]<int... kTile>(std::integer_sequence<int, kTile...>) {
            (add_full<kTile>(rows, stride), ...);
        }
        (std::make_integer_sequence<int, kRest>{});
        if constexpr (kRest < 4) {
            if (rest_ == 0) return;
            Unit::template load<5>(rows + kFull * kTileRows * stride, stride);
            Unit::template add_bf16<kRest, 5, 6>();
        }
    }

    template <int kTile>
    void add_full(const std::byte* rows, size_t stride) const {
        Unit::template load<4>(rows + kTile * kTileRows * stride, stride);
        Unit::template add_bf16<kTile, 4, 6>();
        next_.step();
    }

    const HeadsState& s_;
    size_t rest_;  // Keys beyond the full tiles.
    NextRows& next_;
};

template <typename Unit, size_t kFull>
void score_tiles_amx(const HeadsState& s, const AttendBlock& b, NextRows& next) {
    const ScoreTiles<Unit, kFull> tiles(s, b.num_positions - kFull * kTileRows, next);
    tiles.add({s.query, b.ckv, s.latent}, false);
    if (s.rope == 0) return;
    tiles.add({s.query + turned_size(s.latent), b.kr, s.rope}, true);
}

// Not yet scaled, [position][kHeadLanes].
template <typename Unit>
void scores_amx(const HeadsState& s, const AttendBlock& b, NextRows& next) {
    switch (b.num_positions / kTileRows) {
        case 0:
            return score_tiles_amx<Unit, 0>(s, b, next);
        case 1:
            return score_tiles_amx<Unit, 1>(s, b, next);
        case 2:
            return score_tiles_amx<Unit, 2>(s, b, next);
        case 3:
            return score_tiles_amx<Unit, 3>(s, b, next);
        default:
            return score_tiles_amx<Unit, 4>(s, b, next);
    }
}

inline void softmax_amx(const HeadsState& s, const AttendBlock& b, NextRows& next) {
    const __m512 scale = _mm512_set1_ps(b.scale);
    const auto score_of = [&](size_t i) __attribute__((always_inline)) {
        float* const scores = s.scores + i * kHeadLanes;
        const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(scores), scale);
        _mm512_store_ps(scores, scaled);
        return scaled;
    };
    softmax_of_heads(s, b, score_of, [&] { next.step(); });
}

// p from [pair][kHeadLanes][2] to [kHeadLanes][kAttentionBlock], as many steps as there are.
inline void turn_probabilities(const HeadsState& s, size_t num_positions) {
    __m512i pairs[2][kHeadLanes];
    const size_t num_steps = num_positions > kStepElements ? 2 : 1;
    for (size_t step = 0; step < num_steps; ++step) {
        for (size_t i = 0; i < kHeadLanes; ++i) {
            pairs[step][i] = _mm512_load_si512(s.p + (step * kHeadLanes + i) * 2 * kHeadLanes);
        }
        transpose(pairs[step]);
    }
    for (size_t step = 0; step < num_steps; ++step) {
        for (size_t h = 0; h < kHeadLanes; ++h) {
            _mm512_store_si512(s.p + h * kAttentionBlock + step * kStepElements, pairs[step][h]);
        }
    }
}

// 16 pairs of rows of 32 columns: a tile of B is every second line.
struct InterleavedValues {
    alignas(64) Bf16 pairs[kTileGroups][2 * kStepElements];

    // Rows from `values` on, `stride` apart, of which there are num_rows; `left` columns. Pairs
    // before first_pair stay as they are.
    void fill(
        const Bf16* values, size_t stride, size_t num_rows, size_t left, size_t first_pair = 0) {
        const auto mask =
            left >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((uint32_t{1} << left) - 1);
        const __m512i lanes =
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        // Element i of the first row beside element i of the second.
        const __m512i low = _mm512_or_si512(
            lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(32)), 16));
        const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
        for (size_t pair = first_pair; 2 * pair < num_rows; ++pair) {
            const Bf16* row = values + 2 * pair * stride;
            const __m512i even = _mm512_maskz_loadu_epi16(mask, row);
            const __m512i odd = 2 * pair + 1 < num_rows
                                    ? _mm512_maskz_loadu_epi16(mask, row + stride)
                                    : _mm512_setzero_si512();
            _mm512_store_si512(pairs[pair], _mm512_permutex2var_epi16(even, low, odd));
            _mm512_store_si512(pairs[pair] + 32, _mm512_permutex2var_epi16(even, high, odd));
        }
    }
};

// 32 columns of a block's steps.
using StepValues = std::array<InterleavedValues, kAttentionBlock / kStepElements>;

// o += p · values for `count` positions from `first` on: as many whole steps as there are, or one
// that is not. The values of the next columns are interleaved before the tiles of these are loaded:
// what was stored just now is slow to load.
template <typename Unit>
void accumulate_amx(
    const HeadsState& s, const AttendBlock& b, size_t first, size_t count, NextRows& next) {
    const size_t pairs = count < kStepElements ? (count + 1) / 2 : kTileGroups;
    TileConfiguration configuration;
    const size_t num_heads = b.end_of_heads(s) - b.first_head;
    for (const size_t c : {0, 1}) configuration.set(c, num_heads, kTileRowBytes);
    configuration.set(4, num_heads, pairs * 4);
    for (const size_t v : {6, 7}) configuration.set(v, pairs, kTileRowBytes);
    Unit::configure(configuration);
    const size_t o_stride = s.o_stride * sizeof(float);
    std::array<StepValues, 2> values;
    const auto fill = [&](size_t column) {
        for (size_t step = 0; step < count; step += kStepElements) {
            values[column / kStepElements % 2][step / kStepElements].fill(
                b.summed() + (first + step) * s.latent + column,
                s.latent,
                std::min(count - step, kStepElements),
                s.latent - column);
            for (size_t i = 0; i < kFetchesOfSums; ++i) next.step();
        }
    };
    fill(0);
    for (size_t column = 0; column < s.latent; column += kStepElements) {
        if (column + kStepElements < s.latent) fill(column + kStepElements);
        float* o = s.o + b.first_head * s.o_stride + column;
        Unit::template load<0>(o, o_stride);
        Unit::template load<1>(o + 16, o_stride);
        for (size_t step = 0; step < count; step += kStepElements) {
            const InterleavedValues& current =
                values[column / kStepElements % 2][step / kStepElements];
            Unit::template load<4>(s.p + b.first_head * kAttentionBlock + first + step,
                                   kAttentionBlock * sizeof(Bf16));
            Unit::template load<6>(current.pairs[0], sizeof current.pairs[0]);
            Unit::template load<7>(current.pairs[0] + 32, sizeof current.pairs[0]);
            Unit::template add_bf16<0, 4, 6>();
            Unit::template add_bf16<1, 4, 7>();
        }
        Unit::template store<0>(o, o_stride);
        Unit::template store<1>(o + 16, o_stride);
    }
}

void begin_amx_heads(const HeadQueries& q, const HeadsState& s) {
    turn_queries(q.query, s.latent, s.num_heads, s.latent, s.query);
    turn_queries(q.query_rope, s.rope, s.num_heads, s.rope, s.query + turned_size(s.latent));
    std::fill_n(s.maximum, kHeadLanes, -std::numeric_limits<float>::infinity());
    std::fill_n(s.sum, kHeadLanes, 0.0f);
    std::fill_n(s.o, s.num_heads * s.o_stride, 0.0f);
    std::fill_n(s.scores, kHeadLanes * kAttentionBlock, 0.0f);
}

void fetch_cold_block(const AttendBlock& b, const HeadsState& s) {
    const auto fetch = [](const Bf16* rows, size_t count) {
        for (size_t i = 0; i < count; i += kLineElements) fetch_amx(rows + i);
    };
    fetch(b.ckv, b.num_positions * s.latent);
    fetch(b.kr, b.num_positions * s.rope);
    if (b.values != nullptr) fetch(b.values, b.num_positions * s.latent);
}

// Of a block: tiles of scores, four positions of its softmax, a few for each tile of values.
inline size_t num_fetches(const HeadsState& s, const AttendBlock& b) {
    const size_t score_steps = s.latent / kStepElements + s.rope / kStepElements;
    const size_t columns = (s.latent + kStepElements - 1) / kStepElements;
    const size_t value_steps = (b.num_positions + kStepElements - 1) / kStepElements;
    return b.num_positions / kTileRows * score_steps + (b.num_positions + 3) / 4 +
           kFetchesOfSums * columns * value_steps;
}

template <typename Unit>
void attend_amx_block(const AttendBlock& b, const HeadsState& s) {
    if (b.is_cold) fetch_cold_block(b, s);
    NextRows next(s, b, num_fetches(s, b));
    scores_amx<Unit>(s, b, next);
    softmax_amx(s, b, next);
    turn_probabilities(s, b.num_positions);
    for (size_t h = b.first_head; h < b.end_of_heads(s); ++h) {
        if (s.alpha[h] == 1.0f) continue;
        float* o = s.o + h * s.o_stride;
        const __m512 alpha = _mm512_set1_ps(s.alpha[h]);
        for (size_t c = 0; c < s.o_stride; c += 16) {
            _mm512_store_ps(o + c, _mm512_mul_ps(_mm512_load_ps(o + c), alpha));
        }
    }
    const size_t whole = b.num_positions / kStepElements * kStepElements;
    if (whole > 0) accumulate_amx<Unit>(s, b, 0, whole, next);
    if (whole < b.num_positions) {
        accumulate_amx<Unit>(s, b, whole, b.num_positions - whole, next);
    }
    Unit::release();
}

void finish_amx_heads(const HeadsState& s, Bf16* latent) {
    for (size_t h = 0; h < s.num_heads; ++h) {
        const float* o = s.o + h * s.o_stride;
        const Divisor sum(s.sum[h]);
        for (size_t c = 0; c < s.latent; c += 16) {
            const size_t left = std::min<size_t>(s.latent - c, 16);
            _mm256_mask_storeu_epi16(latent + h * s.latent + c,
                                     static_cast<__mmask16>((1u << left) - 1),
                                     round_16(sum.divide(_mm512_load_ps(o + c))));
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
