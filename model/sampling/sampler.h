// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sampler: chooses the next token from one row of logits, and says its logprob.
//
// Order: temperature, then min-p, top-k, top-p, then one draw (the order of vLLM). The draw is
// Philox4x32-10 keyed by the seed at the counter (absolute position, choice index): the choice
// depends on the logits and these alone, not on batch, threads or restarts (promise 1).
//
// Candidates are ordered by (logit descending, id ascending), so ties are settled the same way
// whatever algorithm finds them. logprob is the fp32 log-softmax of the raw logits, before
// temperature and truncation; the sum of its exponentials runs over ascending ids in double.
//
// Scratch for one row is allocated at construction; sampling allocates nothing unless it fails.
// One thread at a time per object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/sampling/candidate_order.h"
#include "proto/status.h"

namespace afd {
class SamplingSettings;  // proto/sampling.proto: meanings and ranges.
}

namespace afd::model {

// SamplingSettings as the data thread reads them for every token: no message, no allocation.
struct SamplingParams {
    float temperature = 1;  // 0: greedy. Otherwise in (0, 2].
    uint32_t top_k = 0;     // 0: all.
    float top_p = 1;        // In (0, 1]; 1: all.
    float min_p = 0;        // In [0, 1]; 0: all.
    uint64_t seed = 0;
    uint32_t choice = 0;  // Index among the choices of one request.
};

// Errors: kInvalidArgument naming the field, its value and what is allowed.
Result<> validate(const SamplingSettings& settings);

// REQUIRES: validate(settings).ok().
SamplingParams to_params(const SamplingSettings& settings);

struct SampledToken {
    uint32_t id = 0;
    float logprob = 0;
};

class Sampler {
  public:
    explicit Sampler(size_t vocab_size);

    // Chooses the token at absolute `position` (the index it gets in the sequence).
    // REQUIRES: params in their ranges, logits.size() == vocab_size.
    // Errors: kInternal when a logit is NaN or +infinity, or all are -infinity.
    Result<SampledToken> sample(std::span<const float> logits,
                                const SamplingParams& params,
                                uint64_t position);

    // logprob of `id`. Errors: as sample().
    Result<float> logprob(std::span<const float> logits, uint32_t id);

  private:
    // log Σ exp(logit - maximum), whose terms it leaves in weights_.
    float log_of_sum(std::span<const float> logits, float maximum);
    // One of the candidates that min_p, top_k and top_p allow; `uniform` in [0, 1).
    uint32_t draw(const SamplingParams& params, double uniform, float maximum);
    // Moves those that min_p allows to the front, ids ascending.
    std::span<const Candidate> keep_likely(float min_p);

    size_t vocab_size_;
    std::vector<float> weights_;  // By id.
    std::vector<Candidate> candidates_;
    CandidateOrder order_;
};

}  // namespace afd::model
