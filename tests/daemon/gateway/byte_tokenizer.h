// SPDX-License-Identifier: Apache-2.0
#pragma once

// A tokenizer whose token ids are the 256 byte values, and id 256 a special end-of-text token:
// what a test sends and expects can be read from the text.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::daemon {

inline constexpr uint32_t kEndOfText = 256;
inline constexpr uint32_t kByteVocabulary = 257;

// Thirty steps that double an "a": beyond what a tokenizer makes of a text.
inline nlohmann::json doubling_normalizer() {
    nlohmann::json steps = nlohmann::json::array();
    for (int i = 0; i < 30; ++i) {
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
    }
    return {{"type", "Sequence"}, {"normalizers", steps}};
}

inline model::Tokenizer make_byte_tokenizer(const nlohmann::json& normalizer = nullptr) {
    nlohmann::json vocabulary;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        vocabulary[model::byte_stand_in(static_cast<uint8_t>(byte))] = byte;
    }
    nlohmann::json json;
    json["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}};
    json["pre_tokenizer"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    json["normalizer"] = normalizer;
    json["decoder"] = {{"type", "ByteLevel"}};
    json["added_tokens"] = nlohmann::json::array({{{"id", kEndOfText},
                                                   {"content", "<|end|>"},
                                                   {"special", true},
                                                   {"single_word", false},
                                                   {"lstrip", false},
                                                   {"rstrip", false},
                                                   {"normalized", false}}});
    auto tokenizer = model::Tokenizer::parse(json.dump(), "", "byte tokenizer");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    return std::move(tokenizer).value();
}

}  // namespace afd::daemon
