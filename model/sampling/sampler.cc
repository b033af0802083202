// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "model/sampling/philox.h"
#include "model/sampling/row_maximum.h"
#include "ops/experts/exp_row.h"
#include "ops/tensor/math.h"
#include "proto/check.h"

namespace afd::model {
namespace {

// A point of [0, sum): rounding must not let it reach the sum.
double point_below(double sum, double uniform) {
    return std::min(uniform * sum, std::nextafter(sum, 0.0));
}

double sum_of_weights(std::span<const Candidate> candidates) {
    double sum = 0;
    for (const Candidate& candidate : candidates) sum += static_cast<double>(candidate.weight);
    return sum;
}

// By ascending id. `target` is below the sum of their weights.
uint32_t draw_by_id(std::span<const Candidate> candidates, double target) {
    double sum = 0;
    for (const Candidate& candidate : candidates) {
        sum += static_cast<double>(candidate.weight);
        if (sum > target) return candidate.id;
    }
    AFD_ASSERT(false, "no weight among %zu candidates", candidates.size());
    return 0;
}

// The highest logits, descending; of equal ones the lowest id first. Few are wanted, so that nearly
// every token is settled by one comparison.
void find_highest(std::span<const float> logits, std::span<TokenLogprob> top) {
    size_t num_found = 0;
    for (size_t id = 0; id < logits.size(); ++id) {
        if (num_found == top.size() && !(logits[id] > top.back().logprob)) continue;
        size_t at = num_found < top.size() ? num_found++ : top.size() - 1;
        for (; at > 0 && logits[id] > top[at - 1].logprob; --at) top[at] = top[at - 1];
        top[at] = {static_cast<uint32_t>(id), logits[id]};
    }
}

}  // namespace

Sampler::Sampler(size_t vocab_size)
    : vocab_size_(vocab_size),
      weights_(vocab_size),
      candidates_(vocab_size),
      masked_(vocab_size),
      changes_(vocab_size),
      order_(vocab_size) {}

Result<SampledToken> Sampler::sample(std::span<const float> logits,
                                     const SamplingParams& params,
                                     uint64_t position,
                                     const TokenHistory& history,
                                     std::span<TokenLogprob> top) {
    AFD_ASSERT(logits.size() == vocab_size_ && top.size() <= vocab_size_,
               "%zu logits of %zu, %zu of them wanted",
               logits.size(),
               vocab_size_,
               top.size());
    AFD_ASSIGN(const Maximum raw_maximum, find_maximum(logits));
    const float log_sum = log_of_sum(logits, raw_maximum.logit);
    const auto logprob_of = [&](float logit) { return (logit - raw_maximum.logit) - log_sum; };
    if (!top.empty()) find_highest(logits, top);
    for (TokenLogprob& token : top) token.logprob = logprob_of(token.logprob);

    std::span<const float> row = logits;
    const bool is_changed = LogitChanges::is_needed(params, history);
    if (is_changed) row = changes_.apply(logits, params, history);
    const bool is_gathered = !history.allowed.empty();
    if (is_gathered) row = masked_.gather(row, history.allowed);
    Maximum maximum = raw_maximum;
    if (is_changed || is_gathered) {
        AFD_ASSIGN(maximum, find_maximum(row));
    }
    // In the row: gathered logits are numbered anew, in the order of their ids.
    uint32_t chosen = maximum.id;
    if (params.temperature > 0) {
        // At temperature 1 log_of_sum() has left the weights as they are needed.
        if (is_changed || is_gathered || params.temperature != 1) {
            ops::exp_row(
                row, maximum.logit, params.temperature, std::span(weights_).first(row.size()));
        }
        for (uint32_t i = 0; i < row.size(); ++i) {
            candidates_[i] = {row[i], i, weights_[i]};
        }
        const double uniform = philox_uniform(params.seed, params.choice, position);
        chosen = draw(std::span(candidates_).first(row.size()), params, uniform, maximum.logit);
    }
    if (is_gathered) chosen = MaskedRow::token_at(history.allowed, chosen);
    return SampledToken{chosen, logprob_of(logits[chosen])};
}

Result<float> Sampler::logprob(std::span<const float> logits,
                               uint32_t id,
                               std::span<TokenLogprob> top) {
    AFD_ASSERT(logits.size() == vocab_size_ && id < vocab_size_ && top.size() <= vocab_size_,
               "token %u, %zu logits of %zu, %zu of them wanted",
               id,
               logits.size(),
               vocab_size_,
               top.size());
    AFD_ASSIGN(const Maximum maximum, find_maximum(logits));
    const float log_sum = log_of_sum(logits, maximum.logit);
    if (!top.empty()) find_highest(logits, top);
    for (TokenLogprob& token : top) token.logprob = (token.logprob - maximum.logit) - log_sum;
    return (logits[id] - maximum.logit) - log_sum;
}

float Sampler::log_of_sum(std::span<const float> logits, float maximum) {
    ops::exp_row(logits, maximum, 1, weights_);
    double sum = 0;
    // In double and by ascending id, which fixes the last bit of a log probability.
    for (const float weight : weights_) sum += static_cast<double>(weight);
    return ops::log(static_cast<float>(sum));
}

uint32_t Sampler::draw(std::span<Candidate> candidates,
                       const SamplingParams& params,
                       double uniform,
                       float maximum) {
    const std::span<const Candidate> kept =
        params.min_p > 0 ? keep_likely(candidates, params.min_p) : candidates;
    const bool has_top_k = params.top_k > 0 && params.top_k < kept.size();
    // Without truncation no order is needed, and ids ascending are one as good as any.
    if (!has_top_k && params.top_p >= 1) {
        return draw_by_id(kept, point_below(sum_of_weights(kept), uniform));
    }
    order_.start(kept, maximum, params.temperature);
    double sum = has_top_k ? order_.count(params.top_k).sum : sum_of_weights(kept);
    if (params.top_p < 1) sum = order_.reach(static_cast<double>(params.top_p) * sum).sum;
    return order_.exceed(point_below(sum, uniform)).id;
}

// A weight is a probability in units of the best one's: exp(0) = 1 is the most likely token's.
std::span<const Candidate> Sampler::keep_likely(std::span<Candidate> candidates, float min_p) {
    const auto end = std::remove_if(candidates.begin(),
                                    candidates.end(),
                                    [min_p](const Candidate& c) { return c.weight < min_p; });
    return {candidates.begin(), end};
}

}  // namespace afd::model
