// SPDX-License-Identifier: Apache-2.0
#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "model/philox.h"
#include "ops/math.h"

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
            return Error{Code::kInternal,
                         "the logit of token " + std::to_string(id) + " is " +
                             (std::isnan(logit) ? "NaN" : "infinite") +
                             "; the model's weights or activations overflow"};
        }
        if (logit > best.logit) best = {static_cast<uint32_t>(id), logit};
    }
    if (best.logit == -std::numeric_limits<float>::infinity()) {
        return Error{Code::kInternal,
                     "all logits are -infinity; the model's weights or activations overflow"};
    }
    return best;
}

float log_softmax(std::span<const float> logits, const Maximum& maximum, uint32_t id) {
    double sum = 0;
    for (const float logit : logits) sum += static_cast<double>(ops::exp(logit - maximum.logit));
    return (logits[id] - maximum.logit) - ops::log(static_cast<float>(sum));
}

Error out_of_range(const char* name, const std::string& value, const char* allowed) {
    return Error{Code::kInvalidArgument,
                 std::string(name) + " is " + value + "; allowed: " + allowed};
}

}  // namespace

Result<> validate(const SamplingParams& params) {
    if (!(params.temperature >= 0 && params.temperature <= 2)) {
        return out_of_range("temperature", std::to_string(params.temperature), "0 to 2");
    }
    if (!(params.top_p > 0 && params.top_p <= 1)) {
        return out_of_range("top_p", std::to_string(params.top_p), "above 0, up to 1");
    }
    return {};
}

Sampler::Sampler(size_t vocab_size) : vocab_size_(vocab_size), candidates_(vocab_size) {}

Result<SampledToken> Sampler::sample(std::span<const float> logits,
                                     const SamplingParams& params,
                                     uint64_t position) {
    AFD_ASSERT(logits.size() == vocab_size_, "%zu logits of %zu", logits.size(), vocab_size_);
    AFD_ASSIGN(const Maximum maximum, find_maximum(logits));
    if (params.temperature == 0) {
        return SampledToken{maximum.id, log_softmax(logits, maximum, maximum.id)};
    }
    for (size_t id = 0; id < vocab_size_; ++id) {
        const float scaled = (logits[id] - maximum.logit) / params.temperature;
        candidates_[id] = {logits[id], static_cast<uint32_t>(id), ops::exp(scaled)};
    }
    const double total = truncate(params);
    const double target = philox_uniform(params.seed, params.choice, position) * total;
    double sum = 0;
    // Rounding may leave the sum at the target when all are added; then the last that has weight.
    uint32_t chosen = maximum.id;
    for (const Candidate& candidate : std::span(candidates_).first(num_kept_)) {
        if (candidate.weight == 0) continue;
        chosen = candidate.id;
        sum += static_cast<double>(candidate.weight);
        if (sum > target) break;
    }
    return SampledToken{chosen, log_softmax(logits, maximum, chosen)};
}

Result<float> Sampler::logprob(std::span<const float> logits, uint32_t id) const {
    AFD_ASSERT(logits.size() == vocab_size_ && id < vocab_size_,
               "token %u, %zu logits of %zu",
               id,
               logits.size(),
               vocab_size_);
    AFD_ASSIGN(const Maximum maximum, find_maximum(logits));
    return log_softmax(logits, maximum, id);
}

double Sampler::truncate(const SamplingParams& params) {
    // Sorting grows from here: most text needs only a handful of candidates for any usual top-p.
    constexpr size_t kFirstSorted = 64;
    num_kept_ = vocab_size_;
    size_t num_sorted = 0;
    if (params.top_k > 0 && params.top_k < vocab_size_) {
        num_kept_ = num_sorted = params.top_k;
        extend_sorted(0, num_sorted);
    }
    double total = 0;
    for (size_t i = 0; i < num_kept_; ++i) total += static_cast<double>(candidates_[i].weight);
    if (params.top_p >= 1) return total;

    const double wanted = static_cast<double>(params.top_p) * total;
    double sum = 0;
    for (size_t i = 0; i < num_kept_; ++i) {
        if (i == num_sorted) {
            const size_t grown = std::min(num_kept_, std::max(kFirstSorted, num_sorted * 2));
            extend_sorted(num_sorted, grown);
            num_sorted = grown;
        }
        sum += static_cast<double>(candidates_[i].weight);
        if (sum >= wanted) {
            num_kept_ = i + 1;
            break;
        }
    }
    return sum;
}

void Sampler::extend_sorted(size_t num_sorted, size_t num_wanted) {
    const auto before = [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    const auto at = [this](size_t index) {
        return candidates_.begin() + static_cast<std::ptrdiff_t>(index);
    };
    if (num_wanted < vocab_size_) {
        std::nth_element(at(num_sorted), at(num_wanted), candidates_.end(), before);
    }
    std::sort(at(num_sorted), at(num_wanted), before);
}

}  // namespace afd::model
