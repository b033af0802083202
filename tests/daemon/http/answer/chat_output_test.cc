// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/chat_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace afd::daemon {
namespace {

using nlohmann::json;

const model::OutputSyntax kThinksAndCalls{model::ReasoningSyntax::kTagged,
                                          model::ToolSyntax::kJson};
constexpr const char* kSaid =
    "<think>\nWhat time?</think>\n\nI look.\n<tool_call>\n"
    "{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>\n<tool_call>\n"
    "{\"name\": \"then\", \"arguments\": {}}\n</tool_call>";

TEST(ChatOutput, IsOneMessageWithoutAStream) {
    ChatOutput output(kThinksAndCalls, "call_1", false);
    EXPECT_TRUE(output.append(kSaid).empty());
    EXPECT_TRUE(output.finish().empty());
    EXPECT_TRUE(output.has_called());
    const json message = json::parse(output.message());
    EXPECT_EQ(message["content"], "I look.");
    EXPECT_EQ(message["reasoning_content"], "What time?");
    ASSERT_EQ(message["tool_calls"].size(), 2U);
    const json& call = message["tool_calls"][0];
    EXPECT_EQ(call["type"], "function");
    EXPECT_EQ(call["function"]["name"], "now");
    EXPECT_EQ(json::parse(call["function"]["arguments"].get<std::string>())["zone"], "UTC");
    EXPECT_NE(call["id"], message["tool_calls"][1]["id"]);
    EXPECT_FALSE(call.contains("index"));
}

// Goal: deltas put together are the message, whatever parts the text comes in. Method: the text
// byte by byte. Oracle: the message of the whole.
TEST(ChatOutput, DeltasAreTheMessageInParts) {
    ChatOutput whole(kThinksAndCalls, "call_1", false);
    whole.append(kSaid);
    whole.finish();
    const json message = json::parse(whole.message());
    ChatOutput stream(kThinksAndCalls, "call_1", true);
    std::string content;
    std::string reasoning;
    json calls = json::array();
    const auto read = [&](const std::vector<std::string>& deltas) {
        for (const std::string& text : deltas) {
            const json delta = json::parse(text);
            content += delta.value("content", "");
            reasoning += delta.value("reasoning_content", "");
            for (json call : delta.value("tool_calls", json::array())) {
                const bool is_new = call.contains("id");
                EXPECT_EQ(call["index"], is_new ? calls.size() : calls.size() - 1);
                call.erase("index");
                if (is_new) {
                    calls.push_back(call);
                    continue;
                }
                json& arguments = calls.back()["function"]["arguments"];
                arguments =
                    arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
            }
        }
    };
    for (const char* c = kSaid; *c != '\0'; ++c) read(stream.append({c, 1}));
    read(stream.finish());
    EXPECT_EQ(content, message["content"]);
    EXPECT_EQ(reasoning, message["reasoning_content"]);
    EXPECT_EQ(calls, message["tool_calls"]);
}

// A value is of the kind that the tool's schema says.
TEST(ChatOutput, ArgumentsAreJsonAlsoWhereTheModelWritesXml) {
    const model::OutputSyntax syntax{
        model::ReasoningSyntax::kNone,
        model::ToolSyntax::kQwenCoder,
        model::ParameterTypes::of(
            {R"({"function":{"name":"now","parameters":{"properties":)"
             R"({"zone":{"type":"string"},"digits":{"type":"integer"}}}}})"})};
    ChatOutput output(syntax, "call_1", false);
    output.append(
        "<tool_call>\n<function=now>\n<parameter=zone>\n1\n</parameter>\n<parameter=digits>\n2\n"
        "</parameter>\n</function>\n</tool_call>");
    output.finish();
    const json message = json::parse(output.message());
    const std::string arguments = message["tool_calls"][0]["function"]["arguments"];
    EXPECT_EQ(json::parse(arguments), json::parse(R"({"zone":"1","digits":2})"));
    EXPECT_TRUE(message["content"].is_null());
}

TEST(ChatOutput, MessageThatOnlyCallsHasNoContent) {
    ChatOutput output(kThinksAndCalls, "call_1", false);
    output.append("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
    output.finish();
    EXPECT_TRUE(json::parse(output.message())["content"].is_null());
}

TEST(ChatOutput, MessageWithoutMarksIsContent) {
    ChatOutput output({}, "call_1", false);
    output.append("a <think> \"b\"");
    output.finish();
    const json message = json::parse(output.message());
    EXPECT_EQ(message, json::parse(R"({"role":"assistant","content":"a <think> \"b\"",
                                      "refusal":null})"));
}

}  // namespace
}  // namespace afd::daemon
