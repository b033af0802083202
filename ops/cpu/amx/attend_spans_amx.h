// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of several states over one block with AMX: the bits of attention_amx.h, with what is
// loaded of the block used by all of them. Included by ops/cpu/amx/kernels_amx.cc only.
//
// Scores are taken two states and two tiles of keys at a time, so that a tile that comes from the
// second-level cache meets two others; the softmax of the two states before goes on in between,
// since products and the vector unit do not wait for each other. Values are interleaved once: 32
// columns at a time for all states' whole steps of positions, and row by row for the step that a
// span ends in, whose spans have different numbers of pairs.
//
// A product takes no position that is not a span's own, not even with a p of 0: the value may be
// anything, and adding a zero can change the sign of one.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>

#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/avx512_bf16/softmax_avx512_bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

// To the first-level cache: a tile load from there takes 8 cycles, from the second-level one 38.
inline void fetch_near_amx(const void* at) {
    __builtin_prefetch(at, 0, 3);
}

// The sizes that the tiles have, told to the unit where they change. Sizes are what a
// configuration() follows from.
template <typename Unit, typename Sizes>
class SizedTiles {
  public:
    void take(const Sizes& sizes) {
        if (sizes_ == sizes) return;
        sizes_ = sizes;
        Unit::configure(sizes.configuration());
    }

  private:
    std::optional<Sizes> sizes_;
};

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

// Of tiles that sum values: C is 0 to 3, A 4 and 5, B 6 and 7.
struct SumSizes {
    size_t num_heads;
    size_t num_pairs;  // Of positions.

    friend bool operator==(const SumSizes&, const SumSizes&) = default;

    TileConfiguration configuration() const {
        TileConfiguration sizes;
        for (const size_t c : {0, 1, 2, 3}) sizes.set(c, num_heads, kTileRowBytes);
        for (const size_t p : {4, 5}) sizes.set(p, num_heads, num_pairs * 4);
        for (const size_t v : {6, 7}) sizes.set(v, num_pairs, kTileRowBytes);
        return sizes;
    }
};

// Rows of a state that values are summed to: heads of spans that follow each other and have the
// same number of whole steps.
struct SummedRows {
    const HeadsState* state;
    size_t first_head;
    size_t num_heads;
    size_t num_positions;  // Of whole steps, or of the one that is not.

    bool takes(const HeadsSpan& span, size_t positions) const {
        return state == span.state && first_head + num_heads == span.first_head &&
               num_positions == positions;
    }
    // Whether they are summed with others, in tiles of the same sizes.
    bool match(const SummedRows& other) const {
        return num_heads == other.num_heads && num_positions == other.num_positions;
    }
    float* o(size_t column) const { return state->o + first_head * state->o_stride + column; }
    // Those whose o changes with alpha.
    uint32_t scaled() const {
        const uint32_t rows =
            _mm512_cmp_ps_mask(_mm512_load_ps(state->alpha), _mm512_set1_ps(1.0f), _CMP_NEQ_UQ);
        return rows >> first_head & ((1u << num_heads) - 1);
    }
    // o = o · alpha of 32 columns; what is 1 changes nothing. A state before the one that is
    // summed, so that tiles find it in the first-level cache.
    void prepare(size_t column, uint32_t scaled) const {
        float* rows = o(column);
        for (size_t row = 0; row < num_heads; ++row) {
            fetch_near_amx(rows + row * state->o_stride);
            fetch_near_amx(rows + row * state->o_stride + 16);
        }
        for (; scaled != 0; scaled &= scaled - 1) {
            const auto row = static_cast<size_t>(std::countr_zero(scaled));
            const __m512 alpha = _mm512_set1_ps(state->alpha[first_head + row]);
            float* const at = rows + row * state->o_stride;
            _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), alpha));
            _mm512_store_ps(at + 16, _mm512_mul_ps(_mm512_load_ps(at + 16), alpha));
        }
    }
    // 32 columns of o, tiles kTile and the next one.
    template <typename Unit, int kTile>
    void load_sums(size_t column) const {
        Unit::template load<kTile>(o(column), state->o_stride * sizeof(float));
        Unit::template load<kTile + 1>(o(column) + 16, state->o_stride * sizeof(float));
    }
    template <typename Unit, int kTile>
    void store_sums(size_t column) const {
        Unit::template store<kTile>(o(column), state->o_stride * sizeof(float));
        Unit::template store<kTile + 1>(o(column) + 16, state->o_stride * sizeof(float));
    }
    // p of a step.
    template <typename Unit, int kTile>
    void load_weights(size_t position) const {
        Unit::template load<kTile>(state->p + first_head * kAttentionBlock + position,
                                   kAttentionBlock * sizeof(Bf16));
    }
};

// C of 32 columns are tiles kTile and the next one.
template <typename Unit, int kTile, int kWeights>
void add_values() {
    Unit::template add_bf16<kTile, kWeights, 6>();
    Unit::template add_bf16<kTile + 1, kWeights, 7>();
}

template <typename Unit>
void load_values(const InterleavedValues& values) {
    Unit::template load<6>(values.pairs[0], sizeof values.pairs[0]);
    Unit::template load<7>(values.pairs[0] + 32, sizeof values.pairs[0]);
}

// 32 columns of a block's whole steps.
using StepValues = std::array<InterleavedValues, kAttentionBlock / kStepElements>;

// o += p · values of 32 columns and whole steps, for one or two that match: four sums under way
// hide how long a product takes, and values are loaded once for both.
template <typename Unit, size_t kRows>
void sum_step_columns(const SummedRows* rows, const StepValues& values, size_t column) {
    rows[0].load_sums<Unit, 0>(column);
    if constexpr (kRows == 2) rows[1].load_sums<Unit, 2>(column);
    for (size_t first = 0; first < rows[0].num_positions; first += kStepElements) {
        load_values<Unit>(values[first / kStepElements]);
        rows[0].load_weights<Unit, 4>(first);
        add_values<Unit, 0, 4>();
        if constexpr (kRows == 2) {
            rows[1].load_weights<Unit, 5>(first);
            add_values<Unit, 2, 5>();
        }
    }
    rows[0].store_sums<Unit, 0>(column);
    if constexpr (kRows == 2) rows[1].store_sums<Unit, 2>(column);
}

// What the whole steps of a block are summed to.
struct WholeSteps {
    explicit WholeSteps(std::span<const HeadsSpan> spans) {
        for (const HeadsSpan& span : spans) {
            const size_t whole = span.num_positions / kStepElements * kStepElements;
            if (whole == 0) continue;
            num_positions = std::max(num_positions, whole);
            const size_t num_heads = span.last_head - span.first_head;
            if (count > 0 && rows[count - 1].takes(span, whole)) {
                rows[count - 1].num_heads += num_heads;
            } else {
                rows[count++] = {span.state, span.first_head, num_heads, whole};
            }
        }
        for (size_t i = 0; i < count; ++i) scaled[i] = rows[i].scaled();
    }

    std::array<SummedRows, kHeadsSpansMax> rows;
    std::array<uint32_t, kHeadsSpansMax> scaled;
    size_t count = 0;
    size_t num_positions = 0;  // Of the longest.
};

// Goes through the rows of the whole steps, 32 columns at a time, and prepares them.
class Preparation {
  public:
    Preparation(const WholeSteps& steps, size_t latent) : steps_(steps), latent_(latent) {}

    void go_on() {
        if (column_ >= latent_) return;
        steps_.rows[next_].prepare(column_, steps_.scaled[next_]);
        if (++next_ < steps_.count) return;
        next_ = 0;
        column_ += kStepElements;
    }

  private:
    const WholeSteps& steps_;
    size_t latent_;
    size_t next_ = 0;
    size_t column_ = 0;
};

// o = o · alpha + p · values of the whole steps. The values of the next columns are interleaved,
// and the next rows prepared, before the tiles of these are loaded: what was stored just now is
// slow to load.
template <typename Unit>
void sum_whole_steps(SizedTiles<Unit, SumSizes>& tiles,
                     const AttendBlock& block,
                     std::span<const HeadsSpan> spans) {
    const WholeSteps steps(spans);
    if (steps.count == 0) return;
    const size_t latent = spans[0].state->latent;
    const auto fill = [&](size_t column, StepValues& values) {
        for (size_t first = 0; first < steps.num_positions; first += kStepElements) {
            values[first / kStepElements].fill(
                block.summed() + first * latent + column, latent, kStepElements, kStepElements);
        }
    };
    std::array<StepValues, 2> values;
    fill(0, values[0]);
    Preparation ahead(steps, latent);
    for (int i = 0; i < 2; ++i) ahead.go_on();
    const size_t fetched = block.afterwards.size() / (latent / kStepElements);
    const std::byte* afterwards = block.afterwards.data();
    for (size_t column = 0; column < latent; column += kStepElements) {
        const StepValues& current = values[column / kStepElements % 2];
        const size_t next_column = column + kStepElements;
        if (next_column < latent) fill(next_column, values[next_column / kStepElements % 2]);
        for (size_t i = 0; i < fetched; i += kLineBytes) fetch_amx(afterwards + i);
        afterwards += fetched;
        for (size_t i = 0; i < steps.count;) {
            const SummedRows* const rows = &steps.rows[i];
            tiles.take({rows->num_heads, kTileGroups});
            ahead.go_on();
            if (i + 1 < steps.count && rows[0].match(rows[1])) {
                ahead.go_on();
                sum_step_columns<Unit, 2>(rows, current, column);
                i += 2;
            } else {
                sum_step_columns<Unit, 1>(rows, current, column);
                i += 1;
            }
        }
    }
}

// The values of one step of a block, all columns of them, as far as spans have asked for: each has
// a few more positions than the one before.
class StepOfValues {
  public:
    StepOfValues(const AttendBlock& block, size_t latent, Bf16* room)
        : block_(block), latent_(latent), columns_(reinterpret_cast<InterleavedValues*>(room)) {}

    // The positions from `first` on, of which there are `count`; a pair's second one beyond them is
    // 0.
    void reach(size_t first, size_t count) {
        if (first != first_ || count < count_) {
            first_ = first;
            count_ = 0;
        }
        for (size_t column = 0; column < latent_; column += kStepElements) {
            columns_[column / kStepElements].fill(block_.summed() + first * latent_ + column,
                                                  latent_,
                                                  count,
                                                  kStepElements,
                                                  count_ / 2);
        }
        count_ = count;
    }

    const InterleavedValues& columns(size_t column) const {
        return columns_[column / kStepElements];
    }

  private:
    const AttendBlock& block_;
    size_t latent_;
    InterleavedValues* columns_;
    size_t first_ = 0;
    size_t count_ = 0;
};

// The step that a span ends in, if it is not a whole one.
template <typename Unit>
void sum_last_steps(SizedTiles<Unit, SumSizes>& tiles,
                    const AttendBlock& block,
                    std::span<const HeadsSpan> spans,
                    Bf16* room) {
    const size_t latent = spans[0].state->latent;
    StepOfValues values(block, latent, room);
    for (const HeadsSpan& span : spans) {
        const size_t count = span.num_positions % kStepElements;
        if (count == 0) continue;
        const size_t first = span.num_positions - count;
        values.reach(first, count);
        const SummedRows rows{span.state, span.first_head, span.last_head - span.first_head, count};
        const uint32_t scaled = first == 0 ? rows.scaled() : 0;
        tiles.take({rows.num_heads, (count + 1) / 2});
        rows.load_weights<Unit, 4>(first);
        rows.prepare(0, scaled);
        // Two times 32 columns, for the sake of sums under way.
        for (size_t column = 0; column < latent; column += 2 * kStepElements) {
            const size_t second = column + kStepElements;
            if (second < latent) rows.prepare(second, scaled);
            rows.load_sums<Unit, 0>(column);
            load_values<Unit>(values.columns(column));
            add_values<Unit, 0, 4>();
            if (second < latent) {
                rows.load_sums<Unit, 2>(second);
                load_values<Unit>(values.columns(second));
                add_values<Unit, 2, 4>();
                rows.store_sums<Unit, 2>(second);
            }
            rows.store_sums<Unit, 0>(column);
            if (second + kStepElements < latent) rows.prepare(second + kStepElements, scaled);
        }
    }
}

template <typename Unit>
void attend_amx_spans(const AttendBlock& b, std::span<const HeadsSpan> spans, Bf16* room) {
    const HeadsState& s = *spans[0].state;
    if (s.latent % kStepElements != 0 || s.rope % kStepElements != 0) {
        for (const HeadsSpan& span : spans) attend_amx_block<Unit>(b.of(span), *span.state);
        return;
    }
    if (b.is_cold) fetch_cold_block(b, s);
    score_spans<Unit>(b, spans);
    SizedTiles<Unit, SumSizes> tiles;
    sum_whole_steps(tiles, b, spans);
    sum_last_steps(tiles, b, spans, room);
    Unit::release();
}

}  // namespace
}  // namespace afd::ops::cpu
