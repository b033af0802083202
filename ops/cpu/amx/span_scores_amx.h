// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scores and softmax of several states over one block with AMX. Compiled into
// ops/cpu/amx/kernels_amx.cc and tests only.
//
// Scores are taken two states and two tiles of keys at a time, so that a tile that comes from the
// second-level cache meets two others; the softmax of the two states before goes on in between,
// since products and the vector unit do not wait for each other.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/avx512_bf16/softmax_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

// A state and the spans that it has.
struct StateSpans {
    const HeadsState* state;
    std::span<const HeadsSpan> spans;

    HeadLimits limits() const {
        HeadLimits limits{.counts = {}, .least = kAttentionBlock, .most = 0, .heads = 0};
        for (const HeadsSpan& span : spans) {
            limits.least = std::min(limits.least, span.num_positions);
            limits.most = std::max(limits.most, span.num_positions);
        }
        limits.counts = _mm512_set1_epi32(static_cast<int>(limits.most));
        for (const HeadsSpan& span : spans) {
            const __mmask16 heads = HeadLimits::heads_between(span.first_head, span.last_head);
            limits.counts =
                _mm512_mask_set1_epi32(limits.counts, heads, static_cast<int>(span.num_positions));
            limits.heads = static_cast<__mmask16>(limits.heads | heads);
        }
        return limits;
    }
};

// The first state's spans, taken off `spans`.
inline StateSpans take_state(std::span<const HeadsSpan>& spans) {
    size_t count = 1;
    while (count < spans.size() && spans[count].state == spans[0].state) ++count;
    const StateSpans taken{spans[0].state, spans.first(count)};
    spans = spans.subspan(count);
    return taken;
}

// Up to two states whose scores are taken together.
struct StatePair {
    std::array<StateSpans, 2> states;
    size_t count = 0;
};

// The softmax of a pair of states, in pieces.
class SoftmaxPieces {
  public:
    // Their scores are not scaled yet.
    void begin(const StatePair& pair, float scale) {
        count_ = pair.count;
        const __m512 scales = _mm512_set1_ps(scale);
        for (size_t i = 0; i < count_; ++i) {
            const HeadsState& s = *pair.states[i].state;
            const auto score_of = [&](size_t position) __attribute__((always_inline)) {
                float* const at = s.scores + position * kHeadLanes;
                const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(at), scales);
                _mm512_store_ps(at, scaled);
                return scaled;
            };
            steps_[i].emplace(s, pair.states[i].limits(), score_of);
        }
        current_ = 0;
        position_ = 0;
    }

    // One piece, if any is left. Apart, since it stands in the middle of many loops.
    [[gnu::noinline]] void go_on() {
        if (current_ == count_) return;
        SoftmaxStep& step = *steps_[current_];
        step.add(position_);
        position_ += SoftmaxStep::kPositions;
        if (position_ < step.num_positions()) return;
        step.end();
        turn_probabilities(step.state(), step.num_positions());
        position_ = 0;
        ++current_;
    }

    void finish() {
        while (current_ < count_) go_on();
    }

  private:
    std::array<std::optional<SoftmaxStep>, 2> steps_;
    size_t count_ = 0;
    size_t current_ = 0;
    size_t position_ = 0;
};

// Of tiles that score some keys for some states: C is tile 2 · state + key, A 4 + key, B 6 + state.
struct ScoreSizes {
    size_t num_keys;  // Tiles of them.
    size_t num_states;
    size_t last_rows;  // Of the last tile of keys.

    friend bool operator==(const ScoreSizes&, const ScoreSizes&) = default;

    TileConfiguration configuration() const {
        TileConfiguration sizes;
        for (size_t key = 0; key < num_keys; ++key) {
            const size_t rows = key + 1 < num_keys ? kTileRows : last_rows;
            sizes.set(4 + key, rows, kTileRowBytes);
            for (size_t state = 0; state < num_states; ++state) {
                sizes.set(2 * state + key, rows, kTileRowBytes);
            }
        }
        for (size_t state = 0; state < num_states; ++state) {
            sizes.set(6 + state, kTileGroups, kTileRowBytes);
        }
        return sizes;
    }
};

// Scores of kStates states and the positions from `first` on, kKeys tiles of them of which the last
// may be short.
template <typename Unit, size_t kKeys, size_t kStates>
class ScorePass {
  public:
    ScorePass(const AttendBlock& block, const StatePair& pair, size_t first)
        : block_(block), pair_(pair), first_(first) {}

    ScoreSizes sizes() const {
        const size_t before = first_ + (kKeys - 1) * kTileRows;
        return {kKeys, kStates, std::min(block_.num_positions - before, kTileRows)};
    }

    // The tiles have sizes(). next_first: the first row of the next block to fetch meanwhile.
    template <typename Meanwhile>
    void run(const Meanwhile& meanwhile, std::optional<size_t> next_first) const {
        for_each_sum([]<int kTile>(float*) { Unit::template zero<kTile>(); });
        const HeadsState& s = *pair_.states[0].state;
        const auto next = [&](const Bf16* rows, size_t count) {
            return next_first ? rows + *next_first * count : nullptr;
        };
        add(0, block_.ckv, s.latent, next(block_.next_ckv, s.latent), meanwhile);
        add(turned_size(s.latent), block_.kr, s.rope, next(block_.next_kr, s.rope), meanwhile);
        for_each_sum([]<int kTile>(float* scores) {
            Unit::template store<kTile>(scores, kPairsOfHeadsBytes);
        });
    }

  private:
    template <typename Body>
    void for_each_sum(const Body& body) const {
        [&]<int... kTile>(std::integer_sequence<int, kTile...>) {
            (body.template operator()<kTile / kKeys * 2 + kTile % kKeys>(
                 scores(kTile / kKeys, kTile % kKeys)),
             ...);
        }
        (std::make_integer_sequence<int, static_cast<int>(kKeys * kStates)>{});
    }

    float* scores(size_t state, size_t key) const {
        return pair_.states[state].state->scores + (first_ + key * kTileRows) * kHeadLanes;
    }

    // One part of the keys, whose turned queries begin at `query`.
    template <typename Meanwhile>
    void add(size_t query,
             const Bf16* rows,
             size_t count,
             const Bf16* next,
             const Meanwhile& meanwhile) const {
        const Bf16* keys = rows + first_ * count;
        for (size_t element = 0; element < count; element += kStepElements) {
            add_step(query + element * kHeadLanes, keys + element, count * sizeof(Bf16));
            if (element + kStepElements < count) {
                fetch_rows<fetch_near_amx>(keys + element + kStepElements, count);
            }
            if (next != nullptr) fetch_rows<fetch_amx>(next + element, count);
            meanwhile();
        }
    }

    // The lines of all rows of the pass, as far as they are whole tiles.
    template <auto kFetch>
    void fetch_rows(const Bf16* at, size_t stride) const {
        const size_t rows = std::min(block_.num_positions - first_, kKeys * kTileRows);
        for (size_t row = 0; row < rows; ++row) kFetch(at + row * stride);
    }

    void add_step(size_t query, const Bf16* keys, size_t stride) const {
        Unit::template load<4>(keys, stride);
        load_query<0>(query);
        Unit::template add_bf16<0, 4, 6>();
        if constexpr (kStates == 2) {
            load_query<1>(query);
            Unit::template add_bf16<2, 4, 7>();
        }
        if constexpr (kKeys == 2) {
            Unit::template load<5>(reinterpret_cast<const std::byte*>(keys) + kTileRows * stride,
                                   stride);
            Unit::template add_bf16<1, 5, 6>();
            if constexpr (kStates == 2) Unit::template add_bf16<3, 5, 7>();
        }
    }

    template <int kState>
    void load_query(size_t query) const {
        Unit::template load<6 + kState>(pair_.states[kState].state->query + query,
                                        kPairsOfHeadsBytes);
    }

    const AttendBlock& block_;
    const StatePair& pair_;
    size_t first_;
};

template <typename Unit>
void score_pair(SizedTiles<Unit, ScoreSizes>& tiles,
                const AttendBlock& block,
                const StatePair& pair,
                bool fetches_next,
                SoftmaxPieces& softmax_before) {
    constexpr size_t kPositions = 2 * kTileRows;
    for (size_t first = 0; first < block.num_positions; first += kPositions) {
        const auto run = [&]<size_t kKeys, size_t kStates>() {
            const ScorePass<Unit, kKeys, kStates> pass(block, pair, first);
            tiles.take(pass.sizes());
            const bool fetches = fetches_next && first + kPositions <= block.num_next;
            pass.run([&] { softmax_before.go_on(); },
                     fetches ? std::optional<size_t>(first) : std::nullopt);
        };
        const bool has_two_tiles = block.num_positions - first > kTileRows;
        if (has_two_tiles && pair.count == 2) {
            run.template operator()<2, 2>();
        } else if (has_two_tiles) {
            run.template operator()<2, 1>();
        } else if (pair.count == 2) {
            run.template operator()<1, 2>();
        } else {
            run.template operator()<1, 1>();
        }
    }
}

// p and alpha of all spans.
template <typename Unit>
void score_spans(const AttendBlock& block, std::span<const HeadsSpan> spans) {
    SizedTiles<Unit, ScoreSizes> tiles;
    SoftmaxPieces softmax;
    bool is_first = true;
    while (!spans.empty()) {
        StatePair pair;
        while (pair.count < 2 && !spans.empty()) pair.states[pair.count++] = take_state(spans);
        score_pair(tiles, block, pair, is_first, softmax);
        softmax.finish();
        softmax.begin(pair, block.scale);
        is_first = false;
    }
    softmax.finish();
}

}  // namespace
}  // namespace afd::ops::cpu
