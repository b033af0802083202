// SPDX-License-Identifier: Apache-2.0
#pragma once

// GenerationConfig: the checkpoint author's defaults for generation (generation_config.json, an
// optional file). End-of-text tokens come from it first and from config.json otherwise.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/config.h"
#include "proto/status.h"

namespace afd::model {

struct GenerationConfig {
    std::vector<uint32_t> eos_token_ids;  // Ascending, each < vocab_size.
    std::optional<float> temperature;
    std::optional<float> top_p;
    std::optional<uint32_t> top_k;
    std::optional<float> min_p;
    std::optional<float> repetition_penalty;
    std::optional<float> presence_penalty;
    std::optional<float> frequency_penalty;
};

// Reads the text of a generation_config.json. Each default is in the range that a request's is
// (model/sampling/sampling_params.h): one that is not would make every request fail. An empty text
// (no file) leaves everything to `config`. Errors: kDataLoss, kInvalidArgument naming the key and
// its value.
Result<GenerationConfig> parse_generation_config(std::string_view text,
                                                 const ModelConfig& config,
                                                 const std::string& origin);

}  // namespace afd::model
