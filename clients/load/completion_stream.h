// SPDX-License-Identifier: Apache-2.0
#pragma once

// CompletionStream: the events of one streamed answer of /v1/completions or /v1/chat/completions,
// as numbers of tokens; and whether the answer is whole. Knows no text and no clock.
//
// Tokens are counted by the best that the server gives: the ids in each event (return_token_ids),
// else one for each event that holds text, corrected at the end by `usage`. A server that gives
// neither, or tells none although text came, gets its events counted.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "clients/load/door.h"
#include "clients/load/failure.h"

namespace afd::client {

class CompletionStream {
  public:
    // Takes the data of the next event. `num_tokens`: how many came with it.
    // Returns what is wrong with it: an error in band, or no event of these APIs.
    std::optional<Failure> take(std::string_view data, uint64_t& num_tokens);

    // The end marker has come; what follows is not looked at.
    bool is_over() const { return is_over_; }

    // What the whole answer comes to, for an event kFinished. REQUIRES: is_over().
    // Returns what is missing, or does not fit.
    std::optional<Failure> finish(DoorEvent& event) const;

  private:
    bool is_over_ = false;
    bool has_token_ids_ = false;
    uint64_t num_counted_ = 0;                   // What take() told.
    std::optional<uint64_t> num_output_tokens_;  // By usage.
    uint32_t num_prompt_tokens_ = 0;
    uint32_t num_cached_tokens_ = 0;
    std::string finish_reason_;
};

}  // namespace afd::client
