// SPDX-License-Identifier: Apache-2.0
//
// Goal: calls in the forms of Qwen3-Coder, GLM, Kimi and MiniMax are told as calls, with values of
// the kinds that the tool's schema says, and anything else as text. Method: what a model says, in
// one part, byte by byte and cut at every place. Oracle: events written by hand.
#include "model/chat/call/call_syntax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "model/chat/output_parser.h"
#include "tests/model/chat/said_fixture.h"

namespace afd::model {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kWriteTool = {
    R"({"type":"function","function":{"name":"write","parameters":{"type":"object","properties":)"
    R"({"path":{"type":"string"},"text":{"type":"string"},"mode":{"type":"integer"},)"
    R"("sync":{"type":"boolean"},"tags":{"type":"array"},"at":{"type":"object"}}}}})"};

OutputSyntax syntax_of(ToolSyntax tools) {
    return {.tools = tools, .types = ParameterTypes::of(kWriteTool)};
}
const OutputSyntax kCoderCalls = syntax_of(ToolSyntax::kQwenCoder);
const OutputSyntax kGlmCalls = syntax_of(ToolSyntax::kGlm);
const OutputSyntax kKimiCalls = syntax_of(ToolSyntax::kKimi);
const OutputSyntax kMiniMaxCalls = syntax_of(ToolSyntax::kMiniMax);

using Values = std::vector<std::pair<std::string, std::string>>;

// A call as the form writes it, a row of one where calls stand in rows.
std::string written(const OutputSyntax& syntax, const std::string& name, const Values& values) {
    std::string text;
    if (syntax.tools == ToolSyntax::kQwenCoder) {
        text = "<tool_call>\n<function=" + name + ">\n";
        for (const auto& [key, value] : values) {
            text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
        }
        return text + "</function>\n</tool_call>";
    }
    if (syntax.tools == ToolSyntax::kGlm) {
        text = "<tool_call>" + name + "\n";
        for (const auto& [key, value] : values) {
            text += "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
        }
        return text + "</tool_call>";
    }
    text = "<minimax:tool_call>\n<invoke name=\"" + name + "\">\n";
    for (const auto& [key, value] : values) {
        text += "<parameter name=\"" + key + "\">" + value + "</parameter>\n";
    }
    return text + "</invoke>\n</minimax:tool_call>";
}

const std::vector<OutputSyntax> kBareForms = {kCoderCalls, kGlmCalls, kMiniMaxCalls};

TEST(CallSyntax, ValuesAreOfTheKindsThatTheSchemaSays) {
    const Values values = {{"path", "123"},
                           {"text", "  x = \"1\" &lt; <b>\n\n\ty é"},
                           {"mode", "123456789012345678901234567890"},
                           {"sync", "true"},
                           {"tags", "[\"a\", {\"b\": [1.50, null]}]"},
                           {"at", "{\"x\": {\"y\": \"}\"}}"}};
    for (const OutputSyntax& form : kBareForms) {
        const std::string text = written(form, "write", values);
        EXPECT_THAT(parsed_in_parts(form, text),
                    ElementsAre(call("write",
                                     "{\"path\": \"123\", \"text\": \"  x = \\\"1\\\" &lt; <b>\\n"
                                     "\\n\\ty é\", \"mode\": 123456789012345678901234567890, "
                                     "\"sync\": true, \"tags\": [\"a\", {\"b\": [1.50, null]}], "
                                     "\"at\": {\"x\": {\"y\": \"}\"}}}")))
            << text;
    }
}

TEST(CallSyntax, TextMayStandAroundCallsAndCallsFollowEachOther) {
    for (const OutputSyntax& form : kBareForms) {
        const std::string one = written(form, "write", {{"path", "a"}});
        const std::string other = written(form, "unknown", {});
        EXPECT_THAT(parsed_in_parts(form, "I write.\n\n" + one + "\n" + other + "\nDone."),
                    ElementsAre(said("I write."),
                                call("write", "{\"path\": \"a\"}"),
                                call("unknown", "{}"),
                                said("Done.")))
            << one;
    }
}

std::string json_string(const std::string& text) {
    std::string json = "\"";
    for (const char c : text) {
        json += c == '\n' ? "\\n" : c == '"' ? "\\\"" : std::string(1, c);
    }
    return json + '"';
}

// Values are bare text: only what the form has behind its end is the end of one.
TEST(CallSyntax, ValuesMayHaveTheMarksInThem) {
    const std::string in_qwen =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter> </parameter>\n</function> x\n"
        "</tool_call>";
    const std::string in_glm = "<tool_call>f\n</tool_call> <arg_value>1</arg_value> x";
    const std::string in_minimax =
        "<invoke name=\"f\"></invoke> </parameter> x </minimax:tool_call>";
    const std::pair<const OutputSyntax*, std::string> kCases[] = {
        {&kCoderCalls, in_qwen}, {&kGlmCalls, in_glm}, {&kMiniMaxCalls, in_minimax}};
    for (const auto& [form, value] : kCases) {
        const std::string text = written(*form, "write", {{"text", value}, {"mode", "1"}});
        EXPECT_THAT(
            parsed_in_parts(*form, text + "\nx"),
            ElementsAre(call("write", "{\"text\": " + json_string(value) + ", \"mode\": 1}"),
                        said("x")));
    }
}

// A model has left out the end of a value: that does not make one call of two.
TEST(CallSyntax, ACallThatBreaksOffInAValueEndsWhereTheNextOneBegins) {
    const std::pair<const OutputSyntax*, std::string> kCases[] = {
        {&kCoderCalls,
         "<tool_call>\n<function=write>\n<parameter=mode>\n2\n</parameter>\n<parameter=path>\n"
         "10115\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=q>\nx\n"
         "</parameter>\n</function>\n</tool_call>"},
        {&kCoderCalls,
         "<tool_call>\n<function=write>\n<parameter=mode>\n2\n<parameter=path>\n10115\n"
         "</function></tool_call><tool_call>\n<function=g>\n<parameter=q>\nx\n</parameter>\n"
         "</function>"},
        {&kGlmCalls,
         "<tool_call>write\n<arg_key>mode</arg_key>\n<arg_value>2</arg_value>\n<arg_key>path"
         "</arg_key>\n<arg_value>10115\n</tool_call>\n<tool_call>g\n<arg_key>q</arg_key>\n"
         "<arg_value>x</arg_value>\n</tool_call>"},
        {&kMiniMaxCalls,
         "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter name=\"mode\">2</parameter>\n"
         "<parameter name=\"path\">10115\n</invoke>\n<invoke name=\"g\">\n<parameter name=\"q\">"
         "x</parameter>\n</invoke>\n</minimax:tool_call>"}};
    for (const auto& [form, text] : kCases) {
        EXPECT_THAT(parsed_in_parts(*form, text),
                    ElementsAre(call("write", "{\"mode\": 2, \"path\": \"10115\"}"),
                                call("g", "{\"q\": \"x\"}")))
            << text;
    }
    // What cannot be read does not take the next one along.
    EXPECT_THAT(
        parsed_in_parts(kGlmCalls,
                        "<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>\n<tool_call>g"
                        "</tool_call>"),
        ElementsAre(said("<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>"), call("g", "{}")));
    // Nor is it one where nothing, or something else, follows.
    for (const std::string end : {"", "\n", "\n<tool_c", " x\n<tool_call>"}) {
        const std::string open =
            "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</tool_call>" + end;
        EXPECT_THAT(parsed_in_parts(kGlmCalls, open), ElementsAre(said(open)));
    }
}

// Where a value has an end, or a call of its own, before what looks like the end of the call, that
// is text.
TEST(CallSyntax, ValuesMayHaveCallsInARowInThem) {
    const std::pair<const OutputSyntax*, std::string> kCases[] = {
        {&kCoderCalls, "</parameter> x </function> </tool_call> <tool_call> <function=f>"},
        {&kCoderCalls, "<tool_call> x </tool_call> <tool_call> <function=f>"},
        {&kGlmCalls, "<tool_call>f</tool_call> <tool_call>g</tool_call> x"},
        {&kGlmCalls, "</arg_value> x </tool_call> <tool_call>g"},
        {&kMiniMaxCalls, "<invoke name=\"f\"></invoke> <invoke name=\"g\"></invoke> x"},
        {&kMiniMaxCalls, "</parameter> x </invoke> <invoke name=\"f\">"}};
    for (const auto& [form, value] : kCases) {
        const std::string text = written(*form, "write", {{"text", value}, {"mode", "1"}});
        EXPECT_THAT(
            parsed_in_parts(*form, text),
            ElementsAre(call("write", "{\"text\": " + json_string(value) + ", \"mode\": 1}")));
    }
}

TEST(CallSyntax, ALineOfTheNextParameterEndsAValueOfQwenCoder) {
    const auto said_by = [](const std::string& value) {
        return parsed_in_parts(kCoderCalls, written(kCoderCalls, "write", {{"text", value}}));
    };
    EXPECT_THAT(said_by("1\n<parameter=mode>\n2"),
                ElementsAre(call("write", "{\"text\": \"1\", \"mode\": 2}")));
    EXPECT_THAT(
        said_by("\n1\n\n<parameter=mode>\n2\n<parameter=path>\n3"),
        ElementsAre(call("write", "{\"text\": \"\\n1\\n\", \"mode\": 2, \"path\": \"3\"}")));
    EXPECT_THAT(said_by("<parameter=path>"),
                ElementsAre(call("write", "{\"text\": \"\", \"path\": \"\"}")));
    // No such line, or an end of its own: text.
    for (const std::string value : {"1 <parameter=mode>", "<parameter=mode> 2", "<parameter=>"}) {
        EXPECT_THAT(said_by(value), ElementsAre(call("write", "{\"text\": \"" + value + "\"}")));
    }
    EXPECT_THAT(
        said_by("1\n<parameter=mode>\n2</parameter> x"),
        ElementsAre(call("write", "{\"text\": \"1\\n<parameter=mode>\\n2</parameter> x\"}")));
}

TEST(CallSyntax, WhatIsNoCallIsTextWithItsMarks) {
    const std::vector<std::string> kQwenTexts = {
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\nplain text\n</function>\n</tool_call>",
        "<tool_call>\n<function=f\n</function>\n</tool_call>",
        // The value does not end: what came is held back, and no call.
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call> and on",
        "<tool_call>\n<function=f>\n<parameter=a>\n1",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>",
    };
    const std::vector<std::string> kGlmTexts = {
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "<tool_call>two words</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>",
        // More arguments may have been to come.
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>",
        "<tool_call>f",
    };
    const std::vector<std::string> kMiniMaxTexts = {
        "<minimax:tool_call>\n<invoke name=\"\">\n</invoke>",
        "<minimax:tool_call>\n<invoke name=\"f\">\nplain text</invoke>",
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</invoke> x",
        "<minimax:tool_call>\n<invoke name=\"f\">",
        "<minimax:tool_call>",
    };
    const std::vector<std::string> kKimiTexts = {
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        "[1]<|tool_call_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_end|>",
    };
    const std::pair<const OutputSyntax*, const std::vector<std::string>*> kCases[] = {
        {&kCoderCalls, &kQwenTexts},
        {&kGlmCalls, &kGlmTexts},
        {&kMiniMaxCalls, &kMiniMaxTexts},
        {&kKimiCalls, &kKimiTexts}};
    for (const auto& [form, texts] : kCases) {
        for (const std::string& text : *texts) {
            EXPECT_THAT(parsed_in_parts(*form, text), ElementsAre(said(text)));
        }
    }
}

TEST(CallSyntax, QwenCoderNeedNotEndACallThatIsWhole) {
    EXPECT_THAT(parsed_in_parts(kCoderCalls, "<tool_call>\n<function=f>\n</function>\n"),
                ElementsAre(call("f", "{}")));
}

TEST(CallSyntax, QwenCoderWritesPythonsWords) {
    EXPECT_THAT(
        parsed_in_parts(
            kCoderCalls,
            written(kCoderCalls, "write", {{"sync", "False"}, {"mode", "None"}, {"path", "None"}})),
        ElementsAre(call("write", "{\"sync\": false, \"mode\": null, \"path\": \"None\"}")));
}

TEST(CallSyntax, AParameterThatComesTwiceHasItsLastValue) {
    for (const OutputSyntax& form : kBareForms) {
        EXPECT_THAT(parsed_in_parts(form, written(form, "f", {{"a", "1"}, {"b", "2"}, {"a", "3"}})),
                    ElementsAre(call("f", "{\"a\": 3, \"b\": 2}")));
    }
}

TEST(CallSyntax, EmptyValuesAreStrings) {
    for (const OutputSyntax& form : kBareForms) {
        EXPECT_THAT(parsed_in_parts(form, written(form, "write", {{"path", ""}, {"mode", ""}})),
                    ElementsAre(call("write", "{\"path\": \"\", \"mode\": \"\"}")));
    }
}

// GLM-4.7 has no lines between its marks.
TEST(CallSyntax, GlmNeedsNoLines) {
    EXPECT_THAT(
        parsed_in_parts(kGlmCalls,
                        "Ok.<tool_call>write<arg_key>path</arg_key><arg_value>a\nb"
                        "</arg_value><arg_key>mode</arg_key><arg_value>7</arg_value>"
                        "</tool_call><tool_call>f</tool_call>"),
        ElementsAre(
            said("Ok."), call("write", "{\"path\": \"a\\nb\", \"mode\": 7}"), call("f", "{}")));
}

TEST(CallSyntax, KimiNamesFunctionsByTheirIds) {
    EXPECT_THAT(
        parsed_in_parts(kKimiCalls,
                        "I look. <|tool_calls_section_begin|><|tool_call_begin|>functions.find:0"
                        "<|tool_call_argument_begin|>{\"q\": \"é <|im_end|>\"}<|tool_call_end|>"
                        "<|tool_call_begin|> functions.my.time:12 <|tool_call_argument_begin|> "
                        "<|tool_call_end|><|tool_call_begin|>bare<|tool_call_argument_begin|>{}"
                        "<|tool_call_end|><|tool_calls_section_end|>"),
        ElementsAre(said("I look."),
                    call("find", "{\"q\": \"é <|im_end|>\"}"),
                    call("my.time", "{}"),
                    call("bare", "{}")));
}

TEST(CallSyntax, MiniMaxHasRowsOfCalls) {
    EXPECT_THAT(parsed_in_parts(kMiniMaxCalls,
                                "Both.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
                                "name=\"a\">1</parameter>\n</invoke>\n<invoke name=\"\">\n</invoke>"
                                "\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>\nx"),
                ElementsAre(said("Both."),
                            call("f", "{\"a\": 1}"),
                            said("<invoke name=\"\">\n</invoke>"),
                            call("g", "{}"),
                            said("x")));
}

TEST(CallSyntax, ThoughtsComeBeforeCalls) {
    OutputSyntax form = kMiniMaxCalls;
    form.reasoning = ReasoningSyntax::kStarted;
    EXPECT_THAT(
        parsed_in_parts(
            form, "I use <minimax:tool_call>.\n</think>\n\n" + written(form, "f", {{"a", "b"}})),
        ElementsAre(thought("I use <minimax:tool_call>."), call("f", "{\"a\": \"b\"}")));
}

// Goal: whatever a model writes, the events depend on the text alone. Method: 1,000 random rows of
// marks and bits of values in each form, whole, byte by byte and in random parts. Oracle: the
// events of the whole.
TEST(CallSyntax, PartsNeverMatter) {
    const std::string common[] = {
        "\n", " ", "x", "1", "{}", "<", "</", "é", "\"", "<think>", "</think>"};
    const std::string marks[] = {
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n",
        "<parameter=a>",
        "</parameter>",
        "</function>",
        "</tool_call>",
        "<tool_call>f",
        "<arg_key>a</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<minimax:tool_call><invoke name=\"f\">",
        "<invoke name=\"f\">",
        "<parameter name=\"a\">",
        "</invoke>",
        "</minimax:tool_call>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ",
        "{\"name\": \"f\", \"arguments\": ",
        "}}",
        ", \"id\": ",
        "``",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": ",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    };
    std::mt19937 random(7);
    const OutputSyntax json_calls = syntax_of(ToolSyntax::kJson);
    const OutputSyntax v3_calls = syntax_of(ToolSyntax::kDeepSeekV3);
    for (OutputSyntax form :
         {kCoderCalls, kGlmCalls, kKimiCalls, kMiniMaxCalls, json_calls, v3_calls}) {
        for (int i = 0; i < 1000; ++i) {
            form.reasoning = static_cast<ReasoningSyntax>(random() % 3);
            form.must_call = random() % 4 == 0;
            std::string text;
            for (size_t num = random() % 16; num > 0; --num) {
                const bool is_mark = random() % 2 == 0;
                text += is_mark ? marks[random() % std::size(marks)]
                                : common[random() % std::size(common)];
            }
            std::vector<std::string> bytes;
            for (const char byte : text) bytes.emplace_back(1, byte);
            std::vector<std::string> parts;
            for (size_t at = 0; at < text.size(); at += parts.back().size()) {
                parts.push_back(text.substr(at, 1 + random() % 20));
            }
            const std::vector<ChatEvent> whole = parsed(form, {text});
            ASSERT_EQ(parsed(form, bytes), whole) << text;
            ASSERT_EQ(parsed(form, parts), whole) << text;
        }
    }
}

// As for the calls in JSON: what the clients get every template takes again.
TEST(CallSyntax, ArgumentsHaveTheLimitsOfTemplates) {
    const std::string deep = std::string(100, '[') + std::string(100, ']');
    Values many;
    for (int i = 0; i < 513; ++i) many.emplace_back("a" + std::to_string(i), "1");
    for (const OutputSyntax& form : kBareForms) {
        EXPECT_THAT(parsed(form, {written(form, "f", {{"a", deep}})}),
                    ElementsAre(call("f", "{\"a\": \"" + deep + "\"}")));
        const std::vector<ChatEvent> events = parsed(form, {written(form, "f", many)});
        ASSERT_FALSE(events.empty());
        EXPECT_EQ(events[0].kind, ChatEvent::Kind::kContent);
    }
}

// Goal: text that is held back is looked at once. Method: values of 300,000 bytes that look like
// ends, also ends with blanks behind them, in parts of a byte; looked at anew each time these would
// take many minutes.
TEST(CallSyntax, WhatIsHeldBackCostsWhatItsBytesDo) {
    const std::pair<const OutputSyntax*, std::string> kCases[] = {
        {&kCoderCalls, "</tool_call>"},
        {&kGlmCalls, "</tool_call>"},
        {&kMiniMaxCalls, "</invoke>"},
        {&kGlmCalls, "</tool_call>" + std::string(100'000, ' ')}};
    for (const auto& [form, mark] : kCases) {
        std::string value;
        while (value.size() < 300'000) value += mark;
        const std::string text = written(*form, "write", {{"text", value}});
        std::vector<std::string> bytes;
        for (const char byte : text) bytes.emplace_back(1, byte);
        EXPECT_TRUE(parsed(*form, bytes) ==
                    std::vector<ChatEvent>{call("write", "{\"text\": \"" + value + "\"}")})
            << mark.substr(0, 50);
    }
}

}  // namespace
}  // namespace afd::model
