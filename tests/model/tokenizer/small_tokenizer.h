// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small tokenizers as their files describe them, for tests to change, and what is made of them.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::model {

inline nlohmann::json split_step(const std::string& pattern) {
    return {{"type", "Split"},
            {"pattern", {{"Regex", pattern}}},
            {"behavior", "Isolated"},
            {"invert", false}};
}

inline nlohmann::json byte_level() {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

// A tokenizer with ids 0 and 1 special, byte b at 2 + b, "th", "the", " the" from 258, and two
// more added tokens at 270 and 271.
inline nlohmann::json tokenizer_json() {
    nlohmann::json vocab = nlohmann::json::object();
    for (unsigned byte = 0; byte < 256; ++byte) {
        vocab[byte_stand_in(static_cast<uint8_t>(byte))] = 2 + byte;
    }
    const std::string space = byte_stand_in(' ');
    vocab["th"] = 258;
    vocab["the"] = 259;
    vocab[space + "the"] = 260;
    const auto added = [](uint32_t id, const char* content, bool special) {
        return nlohmann::json{
            {"id", id}, {"content", content}, {"special", special}, {"lstrip", false}};
    };
    return {{"added_tokens",
             {added(0, "<|begin|>", true),
              added(1, "<|end|>", true),
              added(270, "<tool>", false),
              added(271, "<tool>x", false)}},
            {"normalizer", nullptr},
            {"pre_tokenizer",
             {{"type", "Sequence"}, {"pretokenizers", {split_step(R"( ?\p{L}+)"), byte_level()}}}},
            {"post_processor", nullptr},
            {"decoder", byte_level()},
            {"model",
             {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e", space + " the"}}}}};
}

inline Tokenizer parsed(const nlohmann::json& file, const std::string& config = "") {
    auto tokenizer = Tokenizer::parse(file.dump(), config, "tokenizer.json");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    return std::move(tokenizer).value();
}

inline std::string refusal(const nlohmann::json& file, const std::string& config = "") {
    const auto tokenizer = Tokenizer::parse(file.dump(), config, "tokenizer.json");
    EXPECT_FALSE(tokenizer.ok());
    return tokenizer.ok() ? "" : tokenizer.error().message;
}

inline std::vector<uint32_t> encoded(Tokenizer& tokenizer, const std::string& text) {
    auto ids = tokenizer.encode(text);
    EXPECT_TRUE(ids.ok()) << ids.error().message;
    return ids.ok() ? ids.value() : std::vector<uint32_t>();
}

// A vocabulary in characters: ids 0 and 1 special, byte b at 2 + b, then what `more` has.
inline nlohmann::json character_json(const std::vector<std::string>& more) {
    nlohmann::json file = tokenizer_json();
    nlohmann::json vocab = {{"<|begin|>", 0}, {"<|end|>", 1}};
    for (unsigned byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 2 + byte;
    for (const std::string& entry : more) vocab[entry] = vocab.size();
    file["model"]["vocab"] = vocab;
    file["model"]["byte_fallback"] = true;
    file["model"]["merges"] = nlohmann::json::array();
    file["added_tokens"].erase(3);
    file["added_tokens"].erase(2);
    file["pre_tokenizer"] = nullptr;
    file["decoder"] = {{"type", "Sequence"},
                       {"decoders",
                        {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
    return file;
}

}  // namespace afd::model
