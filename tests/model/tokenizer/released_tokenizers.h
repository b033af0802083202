// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tokenizers of the kinds that released models have, as slow as those of models are: besides the
// small vocabulary of golden.json, they merge runs of a character, up to 64 of it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/tokenizer/byte_alphabet.h"
#include "tests/model/tokenizer/golden_file.h"

namespace afd::model {

// Families of golden.json. The others there combine what no release does.
inline constexpr std::array kReleasedFamilies = {"deepseek_v3",
                                                 "deepseek_v2",
                                                 "qwen",
                                                 "glm",
                                                 "llama3",
                                                 "gpt2",
                                                 "olmoe",
                                                 "gpt4o",
                                                 "kimi",
                                                 "mixtral",
                                                 "mixtral_metaspace",
                                                 "phi"};

// The characters whose runs are merged.
inline constexpr std::string_view kMergedInRuns = "\n =aA";
inline constexpr size_t kMergedRunMax = 64;

inline nlohmann::json released_tokenizer(const std::string& name) {
    nlohmann::json file = tokenizer_file_of(golden().at("families").at(name));
    nlohmann::json& vocabulary = file["model"]["vocab"];
    nlohmann::json& merges = file["model"]["merges"];
    uint32_t end = 0;
    for (const auto& [token, id] : vocabulary.items()) end = std::max(end, id.get<uint32_t>() + 1);
    for (const nlohmann::json& token : file["added_tokens"]) {
        end = std::max(end, token.at("id").get<uint32_t>() + 1);
    }
    const bool is_in_characters = file["model"].value("byte_fallback", false);
    for (const char c : kMergedInRuns) {
        std::string run = byte_stand_in(static_cast<uint8_t>(c));
        if (is_in_characters) run = c == ' ' ? "▁" : std::string(1, c);
        // A vocabulary in characters may have the byte only, which merges with nothing.
        if (!vocabulary.contains(run)) continue;
        for (size_t length = 2; length <= kMergedRunMax; length *= 2, run += run) {
            const nlohmann::json merge = run + " " + run;
            if (!vocabulary.contains(run + run)) vocabulary[run + run] = end++;
            if (std::ranges::find(merges, merge) == merges.end()) merges.push_back(merge);
        }
    }
    return file;
}

}  // namespace afd::model
