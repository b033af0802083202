// SPDX-License-Identifier: Apache-2.0
#pragma once

// The config.json of a published release, which tests change and read.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/family/config_file.h"
#include "model/gqa/gqa_config.h"
#include "model/json/json_document.h"

namespace afd::model {

inline nlohmann::json config_file(const std::string& folder, const std::string& name) {
    return nlohmann::json::parse(read_text_file(folder + "/" + name + ".json", 1 << 20).value());
}

inline nlohmann::json released(const std::string& name) {
    return config_file(AFD_RELEASED_CONFIGS, name);
}

inline ModelConfig accepted(const nlohmann::json& config) {
    auto result = parse_model_config(config.dump(), "config.json");
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? result.value() : ModelConfig();
}

// What is said of the file with these keys changed: a refusal, or "accepted".
inline std::string refused(nlohmann::json config, const nlohmann::json& changes) {
    config.update(changes);
    const auto result = parse_model_config(config.dump(), "config.json");
    return result.ok() ? "accepted" : result.error().message;
}

// REQUIRES: its heads are grouped.
inline GqaTraits traits_of(const ModelConfig& config) {
    return dynamic_cast<const GqaConfig&>(*config.attention).traits();
}

}  // namespace afd::model
