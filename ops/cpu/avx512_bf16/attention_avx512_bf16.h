// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of some heads for AVX-512 BF16 (ops/attention/mla_attention.h says what it
// computes). Included by ops/cpu/avx512_bf16/kernels_avx512_bf16.cc only.
//
// In scores and softmax the lanes of a register are heads: a pair of elements of all queries lies
// side by side and meets the broadcast pair of a position's key, straight from the cache; a head's
// softmax is one lane, and nothing is summed or turned across lanes. For few heads (kFewHeads), and
// where the cache has keys in pairs, they are positions instead
// (ops/cpu/avx512_bf16/position_lanes_avx512_bf16.h, key_pairs_avx512_bf16.h). Values are summed
// with columns for lanes, either way.

#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "ops/cpu/avx512/math_avx512.h"
#include "ops/cpu/avx512/quotient_avx512.h"
#include "ops/cpu/avx512_bf16/head_lanes_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/key_pairs_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/position_lanes_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/softmax_avx512_bf16.h"
#include "ops/cpu/avx512_bf16/tile_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

// Positions whose sums fill the registers.
constexpr size_t kTilePositions = 16;

// To the second-level cache, and to the first-level one.
inline void fetch_far(const Bf16* at) {
    fetch_to_second_level(reinterpret_cast<uintptr_t>(at));
}
inline void fetch_near(const Bf16* at) {
    fetch_to_first_level(reinterpret_cast<uintptr_t>(at));
}

// sums[position] += query · key over `count` elements, pairs ascending, in one chain. Keys lie
// `count` elements apart and come from the second-level cache; as many rows from `next` on, and
// again for each of kFetches, are fetched from memory meanwhile.
template <size_t kPositions, size_t kFetches>
[[gnu::always_inline]] inline void add_products(
    const Bf16* query, const Bf16* keys, size_t count, const Bf16* next, __m512* sums) {
    // Four rows are within reach of one pointer.
    constexpr size_t kReach = 4;
    const Bf16* rows[(kPositions + kReach - 1) / kReach];
    unrolled<std::size(rows)>([&](size_t r) __attribute__((always_inline)) {
        rows[r] = keys + r * kReach * count;
    });
    const size_t num_pairs = count / 2;
    for (size_t pair = 0; pair < num_pairs; ++pair) {
        if constexpr (kFetches > 0) {
            // A line holds sixteen pairs, so that sixteen rows have a line for every pair.
            unrolled<kFetches>([&](size_t i) __attribute__((always_inline)) {
                fetch_far(next + i * kTilePositions * count + kLineElements * pair);
            });
            // In sixteen steps each row's line after the next one: a block of 64 keys, which came
            // to the second-level cache a block ago, is larger than the first-level one.
            fetch_near(keys + pair % 16 * count + (pair / 16 + 2) * kLineElements);
        }
        const __m512i q = _mm512_load_si512(query + 2 * kHeadLanes * pair);
        unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
            const Bf16* key = rows[p / kReach] + p % kReach * count + 2 * pair;
            sums[p] = dot(sums[p], q, _mm512_set1_epi32(pair_at(key)));
        });
    }
    if (count % 2 == 0) return;
    const __m512i q = _mm512_load_si512(query + 2 * kHeadLanes * num_pairs);
    unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
        const Bf16* key = keys + p * count + count - 1;
        sums[p] = dot(sums[p], q, _mm512_set1_epi32(key->bits));
    });
}

// Scores of kPositions positions from `first` on: [position][kHeadLanes].
template <size_t kPositions, size_t kFetches>
void score_tile(const HeadsState& s, const AttendBlock& b, size_t first) {
    __m512 sums[kPositions];
    unrolled<kPositions>([&](size_t p)
                             __attribute__((always_inline)) { sums[p] = _mm512_setzero_ps(); });
    const Bf16* ckv = b.ckv + first * s.latent;
    const Bf16* kr = b.kr + first * s.rope;
    // The first row that this tile fetches; its own, which are in cache, for none.
    const size_t tile = (first + kTilePositions - 1) / kTilePositions;
    const size_t next = tile * kTilePositions * kFetches;
    const bool fetches = next < b.num_next;
    add_products<kPositions, kFetches>(
        s.query, ckv, s.latent, fetches ? b.next_ckv + next * s.latent : ckv, sums);
    add_products<kPositions, kFetches>(s.query + turned_size(s.latent),
                                       kr,
                                       s.rope,
                                       fetches ? b.next_kr + next * s.rope : kr,
                                       sums);
    unrolled<kPositions>([&](size_t p) __attribute__((always_inline)) {
        const __m512 scaled = _mm512_mul_ps(sums[p], _mm512_set1_ps(b.scale));
        _mm512_store_ps(s.scores + (first + p) * kHeadLanes, scaled);
    });
}

// The last tile of a size begins early enough to be whole: a score's bits do not depend on its
// tile.
template <size_t kFetches>
void score_tiles(const HeadsState& s, const AttendBlock& b) {
    const size_t count = b.num_positions;
    size_t done = 0;
    const auto tile = [&]<size_t kPositions, size_t kTileFetches>() {
        const size_t first = std::min(done, count - kPositions);
        score_tile<kPositions, kTileFetches>(s, b, first);
        return first + kPositions;
    };
    while (done < count) {
        const size_t left = count - done;
        if (left > 8 && count >= kTilePositions) {
            done = tile.template operator()<kTilePositions, kFetches>();
        } else if (left > 4 && count >= 8) {
            done = tile.template operator()<8, 0>();
        } else if (count >= 4) {
            done = tile.template operator()<4, 0>();
        } else {
            done = tile.template operator()<1, 0>();
        }
    }
}

// Rows that nobody fetches while something is computed: all at once takes as long as memory allows,
// one after another as long as it takes to answer.
inline void fetch_all(const Bf16* rows, size_t count) {
    for (size_t i = 0; i < count; i += kLineElements) fetch_far(rows + i);
}

inline void fetch_rows(const HeadsState& s, const Bf16* ckv, const Bf16* kr, size_t num_positions) {
    fetch_all(kr, num_positions * s.rope);
    fetch_all(ckv, num_positions * s.latent);
}

void scores(const HeadsState& s, const AttendBlock& b) {
    const size_t whole = b.num_positions / kTilePositions * kTilePositions;
    if (b.num_next <= whole) return score_tiles<1>(s, b);
    score_tiles<2>(s, b);
    if (b.num_next > 2 * whole) fetch_rows(s, b.next_ckv, b.next_kr, b.num_next);
}

// Where p of a head and a pair of positions stands, as the two ways of the softmax leave it, and
// how near the lines are fetched that the sums ask for meanwhile.
struct HeadsAreLanes {
    static constexpr size_t kHeadStep = 2;
    static constexpr size_t kPairStep = 2 * kHeadLanes;
    static void fetch(uintptr_t at) { fetch_to_second_level(at); }
};
struct PositionsAreLanes {
    static constexpr size_t kHeadStep = kAttentionBlock;
    static constexpr size_t kPairStep = 2;
    static void fetch(uintptr_t at) { fetch_to_second_level(at); }
};
struct KeysArePairs : PositionsAreLanes {
    static void fetch(uintptr_t at) { fetch_to_first_level(at); }
};

// Heads whose sums of 32 columns fill the registers.
constexpr size_t kAtOnce = 8;

// The fetches of a block's accumulation, evenly: two lines a step, half a step apart, at most.
template <typename Order>
class FetchAfterwards {
  public:
    FetchAfterwards(const HeadsState& s, const AttendBlock& b, FetchRange range)
        : at_(range.bytes > 0 ? range.at : reinterpret_cast<uintptr_t>(s.query)) {
        const size_t count = b.end_of_heads(s) - b.first_head;
        const size_t num_heads = count / kAtOnce + count % kAtOnce / 4 + count % 4 / 2 + count % 2;
        const size_t num_steps = num_heads * (s.o_stride / 32) * (b.num_positions / 2);
        // Rounded up: a few lines left out cost a block a fifth of its time.
        const size_t num_fetches = std::max<size_t>(2 * num_steps, 1);
        half_step_ = std::min((range.bytes + num_fetches - 1) / num_fetches, kLineBytes);
    }

    [[gnu::always_inline]] void step() {
        Order::fetch(at_);
        Order::fetch(at_ + half_step_);
        at_ += 2 * half_step_;
    }

  private:
    uintptr_t at_;
    size_t half_step_;
};

// Values in bf16, [position][count].
class Bf16Rows {
  public:
    Bf16Rows(const Bf16* rows, size_t count) : rows_(rows), count_(count) {}

    // Two positions' rows from a column on, and then those of the next two.
    struct Pair {
        const Bf16* row;
        size_t count;

        // 32 columns of either from `column` on, or the last `left` of them and then zeros.
        template <bool kIsWhole>
        [[gnu::always_inline]] __m512i load(size_t which, size_t column, size_t left) const {
            const Bf16* from = row + which * count + column;
            // Whole loads, because masks cost a third of the speed.
            if constexpr (kIsWhole) return _mm512_loadu_si512(from);
            return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint32_t{1} << left) - 1),
                                            from);
        }
        void next() { row += 2 * count; }
    };
    Pair from(size_t column) const { return {rows_ + column, count_}; }

  private:
    const Bf16* rows_;
    size_t count_;
};

// Tried and no faster: rows interleaved once for all heads, columns fetched ahead, columns before
// heads.
//
// o = o · alpha, then o += p · values, positions ascending; for 32 columns, or for the last `left`
// where they are fewer. Interleaving two rows by 16-bit unpacks leaves the columns in the order
// low: 0-3, 8-11, 16-19, 24-27, high: the others; `o` keeps it and finish_heads() undoes it.
template <typename Order, typename Rows, size_t kHeads, size_t kBlocks, bool kIsWhole>
void accumulate_columns(const HeadsState& s,
                        size_t num_positions,
                        const Rows& rows,
                        size_t head,
                        size_t column,
                        size_t left,
                        FetchAfterwards<Order>& afterwards) {
    __m512 low[kHeads][kBlocks];
    __m512 high[kHeads][kBlocks];
    float* const o = s.o + head * s.o_stride + column;
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        const __m512 alpha = _mm512_set1_ps(s.alpha[head + h]);
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const float* from = o + h * s.o_stride + 32 * c;
            low[h][c] = _mm512_mul_ps(_mm512_load_ps(from), alpha);
            high[h][c] = _mm512_mul_ps(_mm512_load_ps(from + 16), alpha);
        });
    });
    auto pair_of_rows = rows.from(column);
    const Bf16* p = s.p + head * Order::kHeadStep;
    const auto add_pair = [&](auto odd_of) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            const __m512i even = pair_of_rows.template load<kIsWhole>(0, 32 * c, left);
            const __m512i odd = odd_of(c);
            const __m512i pairs_low = _mm512_unpacklo_epi16(even, odd);
            const __m512i pairs_high = _mm512_unpackhi_epi16(even, odd);
            unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
                const __m512i weight = _mm512_set1_epi32(pair_at(p + h * Order::kHeadStep));
                low[h][c] = dot(low[h][c], pairs_low, weight);
                high[h][c] = dot(high[h][c], pairs_high, weight);
            });
        });
    };
    for (size_t pair = 0; pair < num_positions / 2; ++pair) {
        unrolled<kBlocks>([&](size_t) __attribute__((always_inline)) { afterwards.step(); });
        add_pair([&](size_t c) __attribute__((always_inline)) {
            return pair_of_rows.template load<kIsWhole>(1, 32 * c, left);
        });
        pair_of_rows.next();
        p += Order::kPairStep;
    }
    if (num_positions % 2 != 0) add_pair([](size_t) { return _mm512_setzero_si512(); });
    unrolled<kHeads>([&](size_t h) __attribute__((always_inline)) {
        unrolled<kBlocks>([&](size_t c) __attribute__((always_inline)) {
            float* to = o + h * s.o_stride + 32 * c;
            _mm512_store_ps(to, low[h][c]);
            _mm512_store_ps(to + 16, high[h][c]);
        });
    });
}

template <typename Order, typename Rows, size_t kHeads>
void accumulate_heads(const HeadsState& s,
                      size_t num_positions,
                      const Rows& rows,
                      size_t head,
                      FetchAfterwards<Order>& afterwards) {
    // Few heads have too few sums for the products to follow each other closely.
    constexpr size_t kBlocks = kHeads <= kNearHeads ? 4 : kHeads < kAtOnce ? 2 : 1;
    const auto columns = [&]<size_t kCount, bool kIsWhole>(size_t column, size_t left) {
        accumulate_columns<Order, Rows, kHeads, kCount, kIsWhole>(
            s, num_positions, rows, head, column, left, afterwards);
    };
    const size_t left = s.latent % 32;
    size_t column = 0;
    for (; column + 32 * kBlocks <= s.latent; column += 32 * kBlocks) {
        columns.template operator()<kBlocks, true>(column, 32);
    }
    if (kBlocks > 2 && column + 64 <= s.latent) {
        columns.template operator()<2, true>(column, 32);
        column += 64;
    }
    for (; column + 32 <= s.latent; column += 32) columns.template operator()<1, true>(column, 32);
    if (left > 0) columns.template operator()<1, false>(s.latent - left, left);
}

// Fetches `fetched` meanwhile, as far as that goes.
template <typename Order, typename Rows>
void accumulate(const HeadsState& s, const AttendBlock& b, const Rows& rows, FetchRange fetched) {
    FetchAfterwards<Order> afterwards(s, b, fetched);
    const auto heads = [&]<size_t kHeads>(size_t head) {
        accumulate_heads<Order, Rows, kHeads>(s, b.num_positions, rows, head, afterwards);
    };
    const size_t last = b.end_of_heads(s);
    size_t head = b.first_head;
    for (; head + kAtOnce <= last; head += kAtOnce) heads.template operator()<kAtOnce>(head);
    for (; head + 4 <= last; head += 4) heads.template operator()<4>(head);
    for (; head + 2 <= last; head += 2) heads.template operator()<2>(head);
    for (; head < last; ++head) heads.template operator()<1>(head);
}

template <typename Order>
void accumulate(const HeadsState& s, const AttendBlock& b, FetchRange fetched) {
    accumulate<Order>(s, b, Bf16Rows(b.summed(), s.latent), fetched);
}

void begin_heads(const HeadQueries& q, const HeadsState& s) {
    turn_queries(q.query, s.latent, s.num_heads, s.latent, s.query);
    turn_queries(q.query_rope, s.rope, s.num_heads, s.rope, s.query + turned_size(s.latent));
    std::fill_n(s.maximum, kHeadLanes, -std::numeric_limits<float>::infinity());
    std::fill_n(s.sum, kHeadLanes, 0.0f);
    std::fill_n(s.o, s.num_heads * s.o_stride, 0.0f);
}

void fetch_cold(const HeadsState& s, const AttendBlock& b) {
    if (b.keys_in_pairs) {
        fetch_key_pairs(s, b.ckv, b.num_positions);
    } else {
        fetch_rows(s, b.ckv, b.kr, b.num_positions);
    }
    if (b.values != nullptr) fetch_all(b.values, b.num_positions * s.latent);
}

void attend_key_pairs(const AttendBlock& b, const HeadsState& s) {
    score_key_pairs(s, b);
    if (s.num_heads <= kNearHeads) {
        softmax_of_positions(s, b, {});
        const auto values = reinterpret_cast<uintptr_t>(b.values);
        const size_t bytes = b.num_positions * s.latent * sizeof(Bf16);
        return accumulate<KeysArePairs>(s, b, {values + kNearBytes, bytes});
    }
    // What memory has no request for during the softmax it gives too late.
    FetchRange fetched = range_of(b.behind_values(s.latent));
    softmax_of_positions(s, b, fetched.take(fetched.bytes / 4));
    accumulate<KeysArePairs>(s, b, fetched);
}

void attend_block(const AttendBlock& b, const HeadsState& s) {
    if (b.is_cold) fetch_cold(s, b);
    if (b.keys_in_pairs) {
        attend_key_pairs(b, s);
    } else if (s.num_heads <= kFewHeads) {
        score_few_heads(s, b);
        if (!fetches_next(b)) fetch_rows(s, b.next_ckv, b.next_kr, b.num_next);
        softmax_of_positions(s, b, {});
        accumulate<PositionsAreLanes>(s, b, range_of(b.afterwards));
    } else {
        scores(s, b);
        const auto score_of = [&](size_t i) __attribute__((always_inline)) {
            return _mm512_load_ps(s.scores + i * kHeadLanes);
        };
        softmax_of_heads(s, b, score_of, [] {});
        accumulate<HeadsAreLanes>(s, b, range_of(b.afterwards));
    }
}

void finish_heads(const HeadsState& s, Bf16* latent) {
    // Column c of 32: its 128-bit lane c / 8, in the low half for c mod 8 < 4.
    const __m512i first_half =
        _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second_half = _mm512_add_epi32(first_half, _mm512_set1_epi32(8));
    for (size_t head = 0; head < s.num_heads; ++head) {
        const float* o = s.o + head * s.o_stride;
        const Divisor sum(s.sum[head]);
        for (size_t column = 0; column < s.latent; column += 32) {
            const __m512 low = sum.divide(_mm512_load_ps(o + column));
            const __m512 high = sum.divide(_mm512_load_ps(o + column + 16));
            const __m256i first = round_16(_mm512_permutex2var_ps(low, first_half, high));
            const __m256i second = round_16(_mm512_permutex2var_ps(low, second_half, high));
            const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
            const size_t left = s.latent - column;
            Bf16* to = latent + head * s.latent + column;
            if (left >= 32) {
                _mm512_storeu_si512(to, both);
            } else {
                _mm512_mask_storeu_epi16(
                    to, static_cast<__mmask32>((uint32_t{1} << left) - 1), both);
            }
        }
    }
}

}  // namespace
}  // namespace afd::ops::cpu
