// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogitChanges: what min_tokens, logit_bias and the penalties make of a row of logits before a
// token is chosen. In this order, the one of vLLM, with every step in fp32:
//
//   tokens that may not come yet            -> -infinity
//   logit_bias                              logit + bias
//   repetition_penalty r, of each token that prompt or output has
//                                           logit > 0 ? logit / r : logit * r
//   frequency_penalty f, presence_penalty p, of each token that the output has c times, c > 0
//                                           (logit - f * c) - p
//
// The counts are made anew from the tokens at each call: so an attention worker that takes a
// request over after a crash, and knows its tokens, has the same bits. That costs two passes over
// the tokens of the sequence and none over the vocabulary, and keeps no state for each sequence.
//
// Scratch is allocated at construction. One thread at a time per object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/sampling/sampling_params.h"

namespace afd::model {

// A sequence as the choice of its next token sees it. Ids are below the vocabulary size.
struct TokenHistory {
    std::span<const uint32_t> tokens = {};  // The prompt, then the output.
    size_t num_prompt_tokens = 0;
    std::span<const uint32_t> banned = {};  // May not be next: end tokens before min_tokens.
    // Bit id % 64 of word id / 64: token id may be next (model/grammar/token_constraint.h). Empty:
    // all may; else of the whole vocabulary. The sampler's, not these changes'.
    std::span<const uint64_t> allowed = {};
};

class LogitChanges {
  public:
    explicit LogitChanges(size_t vocab_size);

    // Whether apply() changes anything.
    static bool is_needed(const SamplingParams& params, const TokenHistory& history);

    // The changed row; valid until the next call. REQUIRES: logits.size() == vocab_size.
    std::span<const float> apply(std::span<const float> logits,
                                 const SamplingParams& params,
                                 const TokenHistory& history);

  private:
    void count(const TokenHistory& history, bool counts_prompt);
    void penalise(const SamplingParams& params, std::span<const uint32_t> tokens);

    std::vector<float> changed_;
    // Occurrences in the output, and a bit for one in the prompt; all 0 between calls.
    std::vector<uint32_t> counts_;
};

}  // namespace afd::model
