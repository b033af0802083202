// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of tokens that share their keys, by the kernels of one table: all of them together, or
// each of them alone.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ops/attention/head_attention.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

struct HeadsCase {
    size_t num_heads;  // Of a token; a state has as many tokens as there is room for.
    size_t latent;
    size_t rope;
    bool has_values;
    float query_deviation = 1.0f;
    float value_deviation = 1.0f;
};

class TokenAttention {
  public:
    // num_positions: of each token; all in one block.
    TokenAttention(const HeadsCase& c, std::span<const size_t> num_positions)
        : c_(c),
          num_positions_(num_positions.begin(), num_positions.end()),
          longest_(*std::max_element(num_positions.begin(), num_positions.end())),
          queries_(num_heads(), c.latent, 1, c.query_deviation),
          ropes_(num_heads(), std::max<size_t>(c.rope, 1), 2),
          keys_(longest_, c.latent, 3),
          rope_keys_(longest_, std::max<size_t>(c.rope, 1), 4),
          values_(longest_, c.latent, 5, c.value_deviation) {}

    // Everything of a position.
    void set_position(size_t position, Bf16 value) {
        for (RandomMatrix* rows : {&keys_, &rope_keys_, &values_}) {
            std::fill_n(rows->mutable_rows().row(position), rows->num_cols, value);
        }
    }

    // Bits of the results, [token][head][column].
    std::vector<uint32_t> together(const cpu::Kernels& kernels) const {
        const size_t per_state = cpu::kHeadsMax / c_.num_heads;
        const size_t num_tokens = num_positions_.size();
        const size_t num_states = div_up(num_tokens, per_state);
        const Workspace workspace(num_states * heads_state_bytes(c_.latent, c_.rope) +
                                  workspace_bytes_of<Bf16>(cpu::spans_room_elements(c_.latent)));
        WorkspaceCursor cursor(workspace.bytes());
        std::vector<cpu::HeadsState> states(num_states);
        std::vector<cpu::HeadsSpan> spans;
        for (size_t t = 0; t < num_tokens; ++t) {
            cpu::HeadsState& state = states[t / per_state];
            const size_t first_head = t % per_state * c_.num_heads;
            if (first_head == 0) {
                state = take_heads_state(c_.latent, c_.rope, cursor);
                state.num_heads = std::min(per_state, num_tokens - t) * c_.num_heads;
                kernels.begin_heads(queries_of(t), state);
            }
            spans.push_back({&state, first_head, first_head + c_.num_heads, num_positions_[t]});
        }
        attend_together(spans,
                        0,
                        kernels,
                        cursor.take<Bf16>(cpu::spans_room_elements(c_.latent)),
                        [&](size_t first, size_t count) { return block(first, count); });
        std::vector<Bf16> out(num_heads() * c_.latent);
        for (size_t i = 0; i < num_states; ++i) {
            kernels.finish_heads(states[i], &out[i * per_state * c_.num_heads * c_.latent]);
        }
        return bits_of(std::span<const Bf16>(out));
    }

    std::vector<uint32_t> alone(const cpu::Kernels& kernels) const {
        const Workspace workspace(heads_state_bytes(c_.latent, c_.rope));
        std::vector<Bf16> out(num_heads() * c_.latent);
        for (size_t t = 0; t < num_positions_.size(); ++t) {
            WorkspaceCursor cursor(workspace.bytes());
            cpu::HeadsState state = take_heads_state(c_.latent, c_.rope, cursor);
            state.num_heads = c_.num_heads;
            attend_positions(
                queries_of(t),
                0,
                num_positions_[t],
                kernels,
                state,
                [&](size_t first, size_t count) { return block(first, count); },
                &out[t * c_.num_heads * c_.latent]);
        }
        return bits_of(std::span<const Bf16>(out));
    }

  private:
    size_t num_heads() const { return c_.num_heads * num_positions_.size(); }

    cpu::HeadQueries queries_of(size_t token) const {
        return {.query = queries_.rows().row(token * c_.num_heads),
                .query_rope = ropes_.values.data() + token * c_.num_heads * c_.rope};
    }

    cpu::AttendBlock block(size_t first, size_t count) const {
        return {.ckv = keys_.values.data() + first * c_.latent,
                .kr = rope_keys_.values.data() + first * c_.rope,
                .values = c_.has_values ? values_.values.data() + first * c_.latent : nullptr,
                .num_positions = count,
                .scale = 0.125f,
                .is_cold = first == 0};
    }

    HeadsCase c_;
    std::vector<size_t> num_positions_;
    size_t longest_;
    RandomMatrix queries_;
    RandomMatrix ropes_;
    RandomMatrix keys_;
    RandomMatrix rope_keys_;
    RandomMatrix values_;
};

}  // namespace afd::ops::test
