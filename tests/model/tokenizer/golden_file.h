// SPDX-License-Identifier: Apache-2.0
#pragma once

// golden.json: tokenizers as many families of models have them (golden/families.js), texts, and
// what the tokenizers library makes of them. AFD_TOKENIZER_GOLDEN names another file of that form.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace afd::model {

inline nlohmann::json read_json(const std::string& path) {
    std::ifstream stream(path);
    EXPECT_TRUE(stream) << path;
    return nlohmann::json::parse(stream, nullptr, false);
}

inline const nlohmann::json& golden() {
    static const nlohmann::json kGolden = [] {
        const char* const other = std::getenv("AFD_TOKENIZER_GOLDEN");
        nlohmann::json file =
            read_json(other != nullptr ? other : AFD_TOKENIZER_GOLDEN_DIR "/golden.json");
        file["models"]["bytes"] = read_json(AFD_DEMO_MODEL "/tokenizer.json")["model"];
        return file;
    }();
    return kGolden;
}

// The tokenizer.json of one of its families.
inline nlohmann::json tokenizer_file_of(const nlohmann::json& family) {
    nlohmann::json file = family;
    file["model"] = golden().at("models").at(family.at("model").get<std::string>());
    if (family.contains("model_options")) file["model"].update(family["model_options"]);
    return file;
}

}  // namespace afd::model
