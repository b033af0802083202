// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sampler: chooses the next token from one row of logits, and says its logprob.
//
// Order: min_tokens, logit_bias and penalties (logit_changes.h), the tokens that a response_format
// allows, then temperature, min-p, top-k, top-p, then one draw (the order of vLLM). The draw is
// Philox4x32-10 keyed by the seed at the counter (absolute position, choice index): the choice
// depends on the logits, the tokens before and these alone, not on batch, threads or restarts
// (promise 1).
//
// Where top-k or top-p cut, candidates are ordered by (logit descending, id ascending), so ties are
// settled the same way whatever algorithm finds them; else the draw goes by ascending id. logprob
// is the fp32 log-softmax of the raw logits, before any of the above; the sum of its exponentials
// runs over ascending ids in double.
//
// Scratch for one row is allocated at construction; sampling allocates nothing unless it fails.
// One thread at a time per object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/sampling/candidate_order.h"
#include "model/sampling/logit_changes.h"
#include "model/sampling/masked_row.h"
#include "model/sampling/sampling_params.h"
#include "proto/status.h"

namespace afd::model {

struct SampledToken {
    uint32_t id = 0;
    float logprob = 0;
};

// One of the most likely tokens.
struct TokenLogprob {
    uint32_t id;
    float logprob;
};

// Most of these that a request may ask for with each token.
inline constexpr uint32_t kTopLogprobsMax = 20;

class Sampler {
  public:
    explicit Sampler(size_t vocab_size);

    // Chooses the token at absolute `position` (the index it gets in the sequence). Fills `top`
    // with as many of the most likely tokens, of equal ones the lowest id first.
    // REQUIRES: params in their ranges, logits.size() == vocab_size >= top.size().
    // Errors: kInternal when a logit is NaN or +infinity, or all are -infinity.
    Result<SampledToken> sample(std::span<const float> logits,
                                const SamplingParams& params,
                                uint64_t position,
                                const TokenHistory& history = {},
                                std::span<TokenLogprob> top = {});

    // logprob of `id`; `top` as in sample(). Errors: as sample().
    Result<float> logprob(std::span<const float> logits,
                          uint32_t id,
                          std::span<TokenLogprob> top = {});

  private:
    // log Σ exp(logit - maximum), whose terms it leaves in weights_.
    float log_of_sum(std::span<const float> logits, float maximum);
    // One of the candidates that min_p, top_k and top_p allow; `uniform` in [0, 1).
    uint32_t draw(std::span<Candidate> candidates,
                  const SamplingParams& params,
                  double uniform,
                  float maximum);
    // Moves those that min_p allows to the front, ids ascending.
    static std::span<const Candidate> keep_likely(std::span<Candidate> candidates, float min_p);

    size_t vocab_size_;
    std::vector<float> weights_;  // By id.
    std::vector<Candidate> candidates_;
    MaskedRow masked_;
    LogitChanges changes_;
    CandidateOrder order_;
};

}  // namespace afd::model
