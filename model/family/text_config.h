// SPDX-License-Identifier: Apache-2.0
#pragma once

// The config.json of a model of text and images, whose text model alone is served: the keys of that
// stand in an object of their own, beside those of the other parts.

#include <array>
#include <nlohmann/json.hpp>

namespace afd::model {

inline constexpr const char* kTextConfig = "text_config";

// Whether the keys of the text model are there. REQUIRES: an object.
template <typename Json>
bool has_text_config(const Json& config) {
    const auto text = config.find(kTextConfig);
    return !config.contains("num_hidden_layers") && text != config.end() && text->is_object();
}

// The config.json that the text model alone would have. REQUIRES: has_text_config().
template <typename Json>
Json text_model_of(const Json& config) {
    Json text = config.at(kTextConfig);
    // What files say of the whole model, in most of them here and not there.
    constexpr std::array kOfAll = {"quantization_config",
                                   "compression_config",
                                   "quantize",
                                   "dtype",
                                   "torch_dtype",
                                   "tie_word_embeddings",
                                   "bos_token_id",
                                   "eos_token_id"};
    for (const char* key : kOfAll) {
        const auto own = text.find(key);
        if (config.contains(key) && (own == text.end() || own->is_null())) {
            text[key] = config.at(key);
        }
    }
    return text;
}

}  // namespace afd::model
