// SPDX-License-Identifier: Apache-2.0
#pragma once

// Family: models whose config.json is read alike. A family says how its keys become a ModelConfig:
// the common part, the names of its tensors, and a kind of attention with its dimensions
// (model/attention/attention_config.h), from which weights, cache and block follow. Everything
// else (experts, windows, placement, sampling) asks the ModelConfig.
//
// The families are in model/family/family_registry.h. How to add one: docs/adding/model_family.md.

#include <string_view>

#include "model/checkpoint/config.h"
#include "model/json/key_reader.h"

namespace afd::model {

struct Family {
    std::string_view model_type;    // "deepseek_v3"
    std::string_view architecture;  // "DeepseekV3ForCausalLM"; a derived model may have a
                                    // model_type of its own, but not an architecture.

    // Fills `config` (model_type and quantisation are there already; the ids of special tokens come
    // later), config.attention included. A configuration that cannot be served exactly is refused:
    // problems stay in `keys`, and then `config` is not used.
    void (*read)(KeyReader& keys, ModelConfig& config) = nullptr;
};

}  // namespace afd::model
