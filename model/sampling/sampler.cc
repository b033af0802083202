// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "model/sampling/philox.h"
#include "ops/experts/exp_row.h"
#include "ops/tensor/math.h"
#include "proto/check.h"
#include "proto/failure.h"
#include "proto/sampling.pb.h"

namespace afd::model {
namespace {

struct Maximum {
    uint32_t id = 0;
    float logit = 0;
};

// The highest logit, of equal ones the lowest id. Errors: see Sampler::sample().
Result<Maximum> find_maximum(std::span<const float> logits) {
    Maximum best{0, -std::numeric_limits<float>::infinity()};
    for (size_t id = 0; id < logits.size(); ++id) {
        const float logit = logits[id];
        if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
            return internal(
                "the logit of token {} is {}; the model's weights or activations overflow",
                with(id, std::isnan(logit) ? "NaN" : "infinite"));
        }
        if (logit > best.logit) best = {static_cast<uint32_t>(id), logit};
    }
    if (best.logit == -std::numeric_limits<float>::infinity()) {
        return internal("all logits are -infinity; the model's weights or activations overflow");
    }
    return best;
}

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

// The comparison is written so that NaN fails it.
Result<> check_range(const char* name, float value, float low, float high, const char* allowed) {
    if (value >= low && value <= high) return {};
    std::ostringstream message;
    message << name << " = " << value << ": must be " << allowed;
    return Error{Code::kInvalidArgument, message.str()};
}

}  // namespace

Result<> validate(const SamplingSettings& settings) {
    AFD_TRY(check_range("temperature", settings.temperature(), 0, 2, "from 0 (greedy) to 2"));
    AFD_TRY(check_range("top_p", settings.top_p(), 0, 1, "above 0 and at most 1 (or 0: off)"));
    AFD_TRY(check_range("min_p", settings.min_p(), 0, 1, "from 0 (off) to 1"));
    return {};
}

SamplingParams to_params(const SamplingSettings& settings) {
    return {.temperature = settings.temperature(),
            .top_k = settings.top_k(),
            .top_p = settings.top_p() == 0 ? 1 : settings.top_p(),
            .min_p = settings.min_p(),
            .seed = settings.seed()};
}

Sampler::Sampler(size_t vocab_size)
    : vocab_size_(vocab_size), weights_(vocab_size), candidates_(vocab_size), order_(vocab_size) {}

Result<SampledToken> Sampler::sample(std::span<const float> logits,
                                     const SamplingParams& params,
                                     uint64_t position) {
    AFD_ASSERT(logits.size() == vocab_size_, "%zu logits of %zu", logits.size(), vocab_size_);
    AFD_ASSIGN(const Maximum maximum, find_maximum(logits));
    const float log_sum = log_of_sum(logits, maximum.logit);
    uint32_t chosen = maximum.id;
    if (params.temperature > 0) {
        // At temperature 1 log_of_sum() has left the weights as they are needed.
        if (params.temperature != 1) {
            ops::exp_row(logits, maximum.logit, params.temperature, weights_);
        }
        for (uint32_t id = 0; id < vocab_size_; ++id) {
            candidates_[id] = {logits[id], id, weights_[id]};
        }
        const double uniform = philox_uniform(params.seed, params.choice, position);
        chosen = draw(params, uniform, maximum.logit);
    }
    return SampledToken{chosen, (logits[chosen] - maximum.logit) - log_sum};
}

Result<float> Sampler::logprob(std::span<const float> logits, uint32_t id) {
    AFD_ASSERT(logits.size() == vocab_size_ && id < vocab_size_,
               "token %u, %zu logits of %zu",
               id,
               logits.size(),
               vocab_size_);
    AFD_ASSIGN(const Maximum maximum, find_maximum(logits));
    return (logits[id] - maximum.logit) - log_of_sum(logits, maximum.logit);
}

float Sampler::log_of_sum(std::span<const float> logits, float maximum) {
    ops::exp_row(logits, maximum, 1, weights_);
    double sum = 0;
    // In double and by ascending id, which fixes the last bit of a log probability.
    for (const float weight : weights_) sum += static_cast<double>(weight);
    return ops::log(static_cast<float>(sum));
}

uint32_t Sampler::draw(const SamplingParams& params, double uniform, float maximum) {
    const std::span<const Candidate> kept =
        params.min_p > 0 ? keep_likely(params.min_p) : std::span<const Candidate>(candidates_);
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
std::span<const Candidate> Sampler::keep_likely(float min_p) {
    const auto end = std::remove_if(candidates_.begin(),
                                    candidates_.end(),
                                    [min_p](const Candidate& c) { return c.weight < min_p; });
    return {candidates_.begin(), end};
}

}  // namespace afd::model
