// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of chat templates share: a tokenizer with the special tokens of all of them, a
// conversation, and what a template makes of one.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/chat/template/chat_template.h"
#include "model/tokenizer/byte_alphabet.h"

namespace afd::model {

// The bytes, then these added tokens from 256 on.
inline const std::vector<std::string> kAdded = {"<|im_start|>",
                                                "<|im_end|>",
                                                "<think>",
                                                "</think>",
                                                "<tool_call>",
                                                "</tool_call>",
                                                "<｜begin▁of▁sentence｜>",
                                                "<｜end▁of▁sentence｜>",
                                                "<｜User｜>",
                                                "<｜Assistant｜>",
                                                "</s>",
                                                "<s>",
                                                "[gMASK]",
                                                "<sop>",
                                                "<|user|>",
                                                "<|im_middle|>",
                                                "<|im_user|>",
                                                "<|im_system|>",
                                                "<|endoftext|>",
                                                "<|end|>",
                                                "<|assistant|>",
                                                "<|system|>",
                                                "<|start|>",
                                                "<|channel|>",
                                                "<|message|>",
                                                "<|return|>",
                                                "]~!b[",
                                                "]~b]",
                                                "[e~[",
                                                "<|response|>",
                                                "<|endofresponse|>",
                                                "<|role_sep|>",
                                                "<|message_sep|>",
                                                "[INST]",
                                                "[/INST]"};

inline Tokenizer make_tokenizer(const std::vector<std::string>& added = kAdded,
                                bool strips = false) {
    nlohmann::json vocabulary;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        vocabulary[byte_stand_in(static_cast<uint8_t>(byte))] = byte;
    }
    nlohmann::json json;
    json["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}};
    json["pre_tokenizer"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    json["decoder"] = {{"type", "ByteLevel"}};
    json["added_tokens"] = nlohmann::json::array();
    for (const std::string& content : added) {
        json["added_tokens"].push_back({{"id", 256 + json["added_tokens"].size()},
                                        {"content", content},
                                        {"special", true},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", strips},
                                        {"normalized", false}});
    }
    auto tokenizer = Tokenizer::parse(json.dump(), "", "test");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    return std::move(tokenizer).value();
}

inline std::unique_ptr<const ChatTemplate> chosen(const std::string& jinja) {
    auto found =
        choose_chat_template({jinja, "<｜begin▁of▁sentence｜>", "<|endoftext|>"}, make_tokenizer());
    EXPECT_TRUE(found.ok()) << found.error().message;
    return std::move(found).value();
}

inline ChatMessage message(ChatRole role, const std::string& content) {
    ChatMessage made;
    made.role = role;
    made.content = content;
    return made;
}
inline ChatMessage system(const std::string& content) {
    return message(ChatRole::kSystem, content);
}
inline ChatMessage user(const std::string& content) {
    return message(ChatRole::kUser, content);
}
inline ChatMessage assistant(const std::string& content) {
    return message(ChatRole::kAssistant, content);
}
inline ChatMessage result(const std::string& content) {
    return message(ChatRole::kTool, content);
}
inline ChatMessage calling(const std::string& content, const std::vector<ToolCall>& calls) {
    ChatMessage made = assistant(content);
    made.tool_calls = calls;
    return made;
}

inline const Conversation kTalk{
    {system("Be brief."), user("Hi"), assistant("Hello!"), user("Why?")}};
inline const std::string kTool =
    R"({"type":"function","function":{"name":"f","description":"Does é",)"
    R"("parameters":{"a":[1,2]}}})";

inline std::string text_of(const std::string& jinja, const Conversation& conversation) {
    const auto prompt = chosen(jinja)->render(conversation);
    EXPECT_TRUE(prompt.ok()) << prompt.error().message;
    return prompt.ok() ? prompt.value().to_text() : "";
}

}  // namespace afd::model
