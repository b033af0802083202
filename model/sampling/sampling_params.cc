// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/sampling_params.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "proto/failure.h"
#include "proto/sampling.pb.h"

namespace afd::model {
namespace {

// The comparison is written so that NaN fails it.
Result<> check_range(
    const std::string& name, float value, float low, float high, const char* allowed) {
    if (value >= low && value <= high) return {};
    std::ostringstream message;
    message << name << " = " << value << ": must be " << allowed;
    return Error{Code::kInvalidArgument, message.str()};
}

Result<> check_logit_bias(const SamplingSettings& settings, uint32_t vocab_size) {
    const auto& biases = settings.logit_bias();
    if (biases.size() > kLogitBiasesMax) {
        return invalid_argument("logit_bias has {} tokens: at most {} are taken",
                                with(biases.size(), kLogitBiasesMax));
    }
    std::vector<uint32_t> ids;
    for (const LogitBias& entry : biases) {
        if (entry.token_id() >= vocab_size) {
            return invalid_argument(
                "logit_bias of token {}: the id must be below the vocabulary size {}",
                with(entry.token_id(), vocab_size));
        }
        AFD_TRY(check_range("logit_bias of token " + std::to_string(entry.token_id()),
                            entry.bias(),
                            -100,
                            100,
                            "from -100 to 100"));
        ids.push_back(entry.token_id());
    }
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    if (twice == ids.end()) return {};
    return invalid_argument("logit_bias names token {} more than once: give it one bias",
                            with(*twice));
}

}  // namespace

Result<> validate(const SamplingSettings& settings, uint32_t vocab_size) {
    AFD_TRY(check_range("temperature", settings.temperature(), 0, 2, "from 0 (greedy) to 2"));
    AFD_TRY(check_range("top_p", settings.top_p(), 0, 1, "above 0 and at most 1 (or 0: off)"));
    AFD_TRY(check_range("min_p", settings.min_p(), 0, 1, "from 0 (off) to 1"));
    if (settings.repetition_penalty() != 0) {
        AFD_TRY(check_range("repetition_penalty",
                            settings.repetition_penalty(),
                            0.01F,
                            100,
                            "from 0.01 to 100 (1 or 0: off)"));
    }
    AFD_TRY(check_range("presence_penalty", settings.presence_penalty(), -2, 2, "from -2 to 2"));
    AFD_TRY(check_range("frequency_penalty", settings.frequency_penalty(), -2, 2, "from -2 to 2"));
    return check_logit_bias(settings, vocab_size);
}

SamplingParams to_params(const SamplingSettings& settings) {
    SamplingParams params{.temperature = settings.temperature(),
                          .top_k = settings.top_k(),
                          .top_p = settings.top_p() == 0 ? 1 : settings.top_p(),
                          .min_p = settings.min_p(),
                          .seed = settings.seed(),
                          .choice = settings.choice(),
                          .repetition_penalty = settings.repetition_penalty() == 0
                                                    ? 1
                                                    : settings.repetition_penalty(),
                          .presence_penalty = settings.presence_penalty(),
                          .frequency_penalty = settings.frequency_penalty()};
    params.logit_bias.reserve(static_cast<size_t>(settings.logit_bias_size()));
    for (const LogitBias& entry : settings.logit_bias()) {
        params.logit_bias.push_back({entry.token_id(), entry.bias()});
    }
    return params;
}

}  // namespace afd::model
