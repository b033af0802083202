// SPDX-License-Identifier: Apache-2.0
#pragma once

// SamplingParams: a request's SamplingSettings (proto/sampling.proto: meanings and ranges) as the
// data thread reads them for every token: no message, no allocation.

#include <cstdint>
#include <vector>

#include "proto/status.h"

namespace afd {
class SamplingSettings;
}

namespace afd::model {

// Added to the logit of one token.
struct TokenBias {
    uint32_t id = 0;
    float bias = 0;
};

struct SamplingParams {
    float temperature = 1;  // 0: greedy. Otherwise in (0, 2].
    uint32_t top_k = 0;     // 0: all.
    float top_p = 1;        // In (0, 1]; 1: all.
    float min_p = 0;        // In [0, 1]; 0: all.
    uint64_t seed = 0;
    uint32_t choice = 0;  // Index among the choices of one request.
    float repetition_penalty = 1;
    float presence_penalty = 0;
    float frequency_penalty = 0;
    std::vector<TokenBias> logit_bias = {};  // Each id once, below the vocabulary size.
};

inline constexpr int kLogitBiasesMax = 1024;

// All but response_format, which model/grammar/response_program.h judges.
// Errors: kInvalidArgument naming the field, its value and what is allowed.
Result<> validate(const SamplingSettings& settings, uint32_t vocab_size);

// REQUIRES: validate(settings, vocab_size).ok().
SamplingParams to_params(const SamplingSettings& settings);

}  // namespace afd::model
