// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reservation: how much KV room a request reserves on its attention worker, by the tokens that it
// has and those that it may come to (kv_reserve).
//
// Whole: all that it may come to, so that nobody ever gives way. Growing: what it has and a step
// more, which moves on with its tokens. The worker itself reserves a block only when a token needs
// it (daemon/attention/sequence_table.h), so the step of those that run is what a newcomer may not
// take: beside others it starts only where each of them can go on for a step.

#include <algorithm>
#include <cstdint>

#include "model/attention/kv_cache.h"

namespace afd::daemon {

struct Reservation {
    // Short answers never grow, and a newcomer that must give way has done some work for it: its
    // prompt and a step of everybody.
    static constexpr uint64_t kStepTokens = 256;

    bool grows = false;
    uint32_t window = 0;  // Positions that a token sees in every layer; 0: all.

    // Positions of a request that has `num_tokens` and may come to `tokens_max`.
    uint64_t tokens(uint64_t num_tokens, uint64_t tokens_max) const {
        return grows ? std::min(num_tokens + kStepTokens, tokens_max) : tokens_max;
    }
    uint64_t blocks(uint64_t num_tokens, uint64_t tokens_max) const {
        return model::held_blocks(tokens(num_tokens, tokens_max), window);
    }
};

}  // namespace afd::daemon
