// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/logit_changes.h"

#include <algorithm>
#include <limits>

#include "proto/check.h"

namespace afd::model {
namespace {

constexpr uint32_t kIsInPrompt = 0x80000000;

bool has_output_penalty(const SamplingParams& params) {
    return params.presence_penalty != 0 || params.frequency_penalty != 0;
}

}  // namespace

LogitChanges::LogitChanges(size_t vocab_size) : changed_(vocab_size), counts_(vocab_size) {}

bool LogitChanges::is_needed(const SamplingParams& params, const TokenHistory& history) {
    return params.repetition_penalty != 1 || has_output_penalty(params) ||
           !params.logit_bias.empty() || !history.banned.empty();
}

std::span<const float> LogitChanges::apply(std::span<const float> logits,
                                           const SamplingParams& params,
                                           const TokenHistory& history) {
    AFD_ASSERT(
        logits.size() == changed_.size(), "%zu logits of %zu", logits.size(), changed_.size());
    std::copy(logits.begin(), logits.end(), changed_.begin());
    for (const uint32_t id : history.banned) {
        changed_[id] = -std::numeric_limits<float>::infinity();
    }
    for (const TokenBias& entry : params.logit_bias) changed_[entry.id] += entry.bias;
    const bool repeats = params.repetition_penalty != 1;
    if (repeats || has_output_penalty(params)) {
        count(history, repeats);
        penalise(params,
                 repeats ? history.tokens : history.tokens.subspan(history.num_prompt_tokens));
    }
    return changed_;
}

void LogitChanges::count(const TokenHistory& history, bool counts_prompt) {
    if (counts_prompt) {
        for (const uint32_t id : history.tokens.first(history.num_prompt_tokens)) {
            counts_[id] = kIsInPrompt;
        }
    }
    for (const uint32_t id : history.tokens.subspan(history.num_prompt_tokens)) ++counts_[id];
}

void LogitChanges::penalise(const SamplingParams& params, std::span<const uint32_t> tokens) {
    for (const uint32_t id : tokens) {
        // Each once: the first occurrence takes the count away.
        if (counts_[id] == 0) continue;
        const uint32_t num_in_output = counts_[id] & ~kIsInPrompt;
        counts_[id] = 0;
        float logit = changed_[id];
        if (params.repetition_penalty != 1) {
            logit =
                logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
        }
        if (num_in_output > 0) {
            logit -= params.frequency_penalty * static_cast<float>(num_in_output);
            logit -= params.presence_penalty;
        }
        changed_[id] = logit;
    }
}

}  // namespace afd::model
