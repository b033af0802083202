// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests for tests of the table of sequences, and what the loop does with those that it admits.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "daemon/attention/sequence_table.h"

namespace afd::daemon {

inline std::unique_ptr<SequenceRequest> request_of(uint64_t id, uint32_t max_total_tokens) {
    auto request = std::make_unique<SequenceRequest>();
    request->sequence_id = id;
    request->tokens = {1, 2, 3};
    request->max_total_tokens = max_total_tokens;
    return request;
}

// Of the prefix that all of these tests have: a token for each position.
inline std::unique_ptr<SequenceRequest> prompt_of(uint64_t id,
                                                  uint32_t num_tokens,
                                                  uint32_t last = 0) {
    auto request = std::make_unique<SequenceRequest>();
    request->sequence_id = id;
    for (uint32_t i = 0; i < num_tokens; ++i) request->tokens.push_back(i);
    request->tokens.back() += last;
    request->num_prompt_tokens = num_tokens;
    request->max_total_tokens = num_tokens + 10;
    return request;
}

inline Sequence& admitted(SequenceTable& table, std::unique_ptr<SequenceRequest> request) {
    auto sequence = table.admit(request);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    return *sequence.value();
}

inline void compute(SequenceTable& table, Sequence& sequence, uint32_t num_positions) {
    sequence.num_scheduled = num_positions;
    for (uint32_t& position : sequence.layer_positions) position = num_positions;
    table.offer_computed(sequence);
}

// Blocks that a model with a window of 100 positions in every layer holds at a time.
inline constexpr uint32_t kWindow = 100;
inline const auto kHeld = static_cast<uint32_t>(model::held_blocks(UINT32_MAX, kWindow));

}  // namespace afd::daemon
