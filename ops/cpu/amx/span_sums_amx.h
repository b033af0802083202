// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weighted sums of values of several states over one block with AMX. Compiled into
// ops/cpu/amx/kernels_amx.cc and tests only.
//
// Values are interleaved once: 32 columns at a time for all states' whole steps of positions, and
// row by row for the step that a span ends in, whose spans have different numbers of pairs.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {
namespace {

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

}  // namespace
}  // namespace afd::ops::cpu
