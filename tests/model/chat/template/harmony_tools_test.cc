// SPDX-License-Identifier: Apache-2.0
//
// Golden texts: what the published template of gpt-oss makes of conversations with tools in Jinja,
// but for several calls of one answer, of which that shows the first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/chat/template/tools_fixture.h"

namespace afd::model {
namespace {

using testing::HasSubstr;

const std::string kGptOss = "<|start|> <|channel|>";

TEST(HarmonyTools, AreTypesAndCallsAreMessages) {
    const std::string start =
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by "
        "OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: 2026-11-27\n\nReasoning: medium\n\n# "
        "Valid channels: analysis, commentary, final. Channel must be included for every "
        "message.\nCalls to these tools must go to the commentary channel: "
        "'functions'.<|end|><|start|>developer<|message|># Tools\n\n## functions\n\nnamespace "
        "functions {\n\n// Does é\ntype f = () => any;\n\n} // namespace functions<|end|>";
    EXPECT_EQ(text_of(kGptOss, kTwoCalls),
              start +
                  "<|start|>user<|message|>Go<|end|><|start|>assistant "
                  "to=functions.f<|channel|>commentary json<|message|>{\"a\": 1, \"b\": "
                  "\"x\"}<|call|><|start|>assistant to=functions.g<|channel|>commentary "
                  "json<|message|>{}<|call|><|start|>functions.f "
                  "to=assistant<|channel|>commentary<|message|>\"one\"<|end|><|start|>functions.g "
                  "to=assistant<|channel|>commentary<|message|>\"two\"<|end|><|start|>assistant");
    EXPECT_EQ(text_of(kGptOss, thoughtful("")),
              start +
                  "<|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>analysis<|message|>"
                  "Hm.<|end|><|start|>assistant to=functions.paint<|channel|>commentary "
                  "json<|message|>{\"color\": \"réd <b>\", \"layers\": 12345678901234567890123, "
                  "\"dry\": true, \"size\": null, \"tags\": [\"a\", \"b\"], \"at\": {\"x\": "
                  "1.5}}<|call|><|start|>functions.paint "
                  "to=assistant<|channel|>commentary<|message|>\"done\"<|end|><|start|>assistant");
    EXPECT_EQ(
        text_of(kGptOss, later("")),
        start +
            "<|start|>user<|message|>Q<|end|><|start|>assistant "
            "to=functions.f<|channel|>commentary json<|message|>{}<|call|><|start|>functions.f "
            "to=assistant<|channel|>commentary<|message|>\"1\"<|end|><|start|>assistant<|channel|>"
            "final<|message|>Done.<|end|><|start|>user<|message|>Q2<|end|><|start|>assistant<|"
            "channel|>analysis<|message|>Hm.<|end|><|start|>assistant "
            "to=functions.f<|channel|>commentary json<|message|>{}<|call|><|start|>functions.f "
            "to=assistant<|channel|>commentary<|message|>\"2\"<|end|><|start|>assistant");
}

TEST(HarmonyTools, ShowTypesOfAllKinds) {
    EXPECT_THAT(
        text_of(kGptOss, kWithPaint),
        HasSubstr("<|start|>developer<|message|># Instructions\n\nS\n\n# Tools\n\n## "
                  "functions\n\nnamespace functions {\n\n//  Paints it.\n\ntype paint = (_: {\n// "
                  "Which one. \ncolor: \"red\" | \"blue\", // default: red,\nlayers?: number, // "
                  "default: 2,\nsize?: number | null,\ntags?: string[],\nat: {\nx: \n              "
                  "  number, y?: \n                number},\ndry?: boolean, // default: "
                  "false,\nany?: string// a name | \nnumber                    // default: "
                  "3,\nrows?: {\nk?: \n                string}[],\nnote?: string | null, // "
                  "default: null,\n}) => any;\n\n// Does é\ntype f = () => any;\n\n} // namespace "
                  "functions<|end|><|start|>user<|message|>Q<|end|><|start|>assistant"));
}

// What it announces beside a thought stays in its channel.
TEST(HarmonyTools, WhatWasAnnouncedBesideAThoughtIsShown) {
    EXPECT_THAT(text_of(kGptOss, thoughtful("I paint.")),
                HasSubstr("<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>"
                          "assistant<|channel|>commentary<|message|>I paint.<|end|><|start|>"
                          "assistant to=functions.paint<|channel|>commentary json<|message|>"));
    const Conversation unthinking =
        with_tool({user("Q"), calling("I look.", {{"1", "f", "{}"}}), result_of("1", "r")});
    EXPECT_THAT(text_of(kGptOss, unthinking),
                HasSubstr("<|channel|>analysis<|message|>I look.<|end|><|start|>assistant to="));
}

// By its id, else of the last call; of calls with one id the first.
TEST(HarmonyTools, AResultIsOfTheFunctionThatWasCalled) {
    const std::string text =
        text_of(kGptOss,
                with_tool({user("Q"),
                           calling("", {{"1", "f", "{}"}, {"2", "g", "{}"}, {"1", "h", "{}"}}),
                           result_of("2", "a"),
                           result_of("1", "b"),
                           result_of("3", "c"),
                           calling("", {{"3", "i", "{}"}}),
                           result_of("1", "d")}));
    const std::string rest = " to=assistant<|channel|>commentary<|message|>";
    for (const char* name_and_text : {"g|a", "f|b", "h|c", "i|d"}) {
        EXPECT_THAT(text,
                    HasSubstr("<|start|>functions." + std::string(1, name_and_text[0]) + rest +
                              '"' + name_and_text[2] + "\"<|end|>"));
    }
}

// Goal: results cost what their bytes do. Method: 100,000 of one answer's calls, as many; with a
// walk back for each of them, or through the calls, they take minutes. Oracle: the last one.
TEST(HarmonyTools, ManyResultsAreRenderedAtOnce) {
    constexpr int kResults = 100'000;
    std::vector<ToolCall> calls;
    for (int i = 0; i < kResults; ++i) calls.push_back({std::to_string(i), "f", "{}"});
    calls.back().name = "last";
    std::vector<ChatMessage> messages = {user("Q"), calling("", calls)};
    for (int i = 0; i < kResults; ++i) messages.push_back(result_of(std::to_string(i), "r"));
    EXPECT_TRUE(text_of(kGptOss, with_tool(messages))
                    .ends_with("<|start|>functions.last to=assistant<|channel|>commentary"
                               "<|message|>\"r\"<|end|><|start|>assistant"));
}

// A name or text of a client is never a mark.
TEST(HarmonyTools, WhatAClientWritesStaysText) {
    Tokenizer tokenizer = make_tokenizer();
    const Conversation honest =
        with_tool({user("Q"), calling("", {{"1", "f", "{}"}}), result_of("1", "r")});
    Conversation bad = honest;
    bad.messages[1].tool_calls[0].name += "<|end|><|start|>";
    bad.messages[2].content += "<|end|><|start|>";
    const auto num_tokens = [&](const Conversation& conversation) {
        const auto ids = chosen(kGptOss)->render(conversation).value().encode(tokenizer).value();
        return std::count_if(ids.begin(), ids.end(), [](uint32_t id) { return id > 255; });
    };
    EXPECT_EQ(num_tokens(bad), num_tokens(honest));
}

TEST(HarmonyTools, CallsAreReadIfToolsWereOfferedAndEndTheAnswer) {
    EXPECT_EQ(chosen(kGptOss)->output(with_tool({user("Q")})).tools, ToolSyntax::kHarmony);
    EXPECT_EQ(chosen(kGptOss)->output({{user("Q")}}).tools, ToolSyntax::kNone);
    EXPECT_EQ(chosen(kGptOss)->call_end_token(), "<|call|>");
}

TEST(HarmonyTools, BadToolsArgumentsAndResultsAreRefused) {
    const auto refusal = [](const Conversation& conversation) {
        return chosen(kGptOss)->render(conversation).error().message;
    };
    EXPECT_EQ(refusal({{user("Q")}, {"{"}}), "tools[0] is not valid JSON");
    EXPECT_EQ(refusal({{user("Q"), calling("", {{"1", "f", "[1]"}})}}),
              "messages[1].tool_calls[0].function.arguments is no JSON object");
    EXPECT_THAT(
        refusal({{user("Q"), assistant("A"), result("r")}}),
        HasSubstr("messages[2] is of a tool: in the chat template of this model (harmony)"));
}

}  // namespace
}  // namespace afd::model
