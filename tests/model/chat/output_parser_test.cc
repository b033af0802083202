// SPDX-License-Identifier: Apache-2.0
#include "model/chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/sanitizers.h"
#include "tests/model/chat/chat_fixture.h"
#include "tests/model/chat/said_fixture.h"

namespace afd::model {
namespace {

using testing::ElementsAre;
using Kind = ChatEvent::Kind;

// Whose calls have arguments that are JSON in the text.
constexpr ToolSyntax kJsonArguments[] = {
    ToolSyntax::kJson, ToolSyntax::kDeepSeekV3, ToolSyntax::kDeepSeekV31, ToolSyntax::kKimi};

const OutputSyntax kQwen{ReasoningSyntax::kTagged, ToolSyntax::kJson};
const OutputSyntax kR1{ReasoningSyntax::kStarted, ToolSyntax::kDeepSeekV3};
const OutputSyntax kV31Calls{ReasoningSyntax::kNone, ToolSyntax::kDeepSeekV31};

TEST(OutputParser, QwenThinksAnswersAndCalls) {
    EXPECT_THAT(parsed_in_parts(kQwen,
                                "<think>\nLet me see: 1 < 2.\n</think>\n\nI look it up.\n"
                                "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"a b\", "
                                "\"n\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
                                "\"arguments\": {}}\n</tool_call>"),
                ElementsAre(thought("Let me see: 1 < 2."),
                            said("I look it up."),
                            call("find", "{\"q\": \"a b\", \"n\": 2}"),
                            call("now", "{}")));
}

TEST(OutputParser, QwenNeedNotThink) {
    EXPECT_THAT(parsed_in_parts(kQwen, "  Hello <b>you</b>, <thin> air\n"),
                ElementsAre(said("  Hello <b>you</b>, <thin> air\n")));
    EXPECT_THAT(parsed_in_parts(kQwen, "<think>\n\n</think>\n\nYes."), ElementsAre(said("Yes.")));
    EXPECT_THAT(parsed_in_parts(kQwen, ""), ElementsAre());
}

// Blanks behind the mark that the prompt has ended with belong to it, as behind one that was said.
TEST(OutputParser, BlanksBehindAThoughtOfThePromptAreNotSaid) {
    OutputSyntax tagged = kQwen;
    OutputSyntax untagged = kV31Calls;
    tagged.follows_thought = untagged.follows_thought = true;
    for (const OutputSyntax& syntax : {tagged, untagged}) {
        EXPECT_THAT(parsed_in_parts(syntax, "\n\n Hello\n"), ElementsAre(said("Hello\n")));
        EXPECT_THAT(parsed_in_parts(syntax, "\n<thin"), ElementsAre(said("<thin")));
        EXPECT_THAT(parsed_in_parts(syntax, " \n"), ElementsAre());
    }
    EXPECT_THAT(parsed_in_parts(tagged, "\n<think>Hm.</think>\nYes."),
                ElementsAre(thought("Hm."), said("Yes.")));
}

TEST(OutputParser, ThoughtThatNeverEndsIsAThought) {
    EXPECT_THAT(parsed_in_parts(kQwen, "<think>on and on </thin"),
                ElementsAre(thought("on and on </thin")));
}

TEST(OutputParser, R1BeginsInItsThought) {
    EXPECT_THAT(parsed_in_parts(kR1, "Hm.\n\nSo.\n</think>\n\nIt is 4."),
                ElementsAre(thought("Hm.\n\nSo."), said("It is 4.")));
}

TEST(OutputParser, DeepSeekV3CallsAreBlocksOfJson) {
    EXPECT_THAT(
        parsed_in_parts(
            {.tools = ToolSyntax::kDeepSeekV3},
            "Both:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```"
            "json\n"
            "{\"city\": \"Köln\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
            "<｜tool▁sep｜>time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ElementsAre(said("Both:"), call("weather", "{\"city\": \"Köln\"}"), call("time", "{}")));
}

TEST(OutputParser, DeepSeekV31CallsCallsAreNameAndJson) {
    EXPECT_THAT(parsed_in_parts(
                    kV31Calls,
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{\"x\":1}"
                    "<｜tool▁call▁end｜><｜tool▁call▁begin｜>b<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
                    "<｜tool▁calls▁end｜>\n"),
                ElementsAre(call("a", "{\"x\":1}"), call("b", "{}")));
}

TEST(OutputParser, WhatCannotBeReadAsACallIsContent) {
    EXPECT_THAT(parsed_in_parts(kQwen, "<tool_call>{\"name\": 3}</tool_call> and on"),
                ElementsAre(said("<tool_call>{\"name\": 3}</tool_call>and on")));
    EXPECT_THAT(parsed_in_parts(kQwen, "<tool_call>{\"name\": \"f\", \"argu"),
                ElementsAre(said("<tool_call>{\"name\": \"f\", \"argu")));
    // Its arguments begin too far from its start to be told while they come.
    const std::string late = "<tool_call>" + std::string(1024, ' ') +
                             "{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>";
    EXPECT_THAT(parsed_in_parts(kQwen, late), ElementsAre(said(late)));
    EXPECT_THAT(parsed_in_parts(kV31Calls, "x<｜tool▁calls▁begin｜>y<｜tool▁call▁end｜>z"),
                ElementsAre(said("x<｜tool▁calls▁begin｜>y<｜tool▁call▁end｜>z")));
    // Nested deeper than anything that is a call.
    const std::string deep =
        "<tool_call>{\"name\": \"f\", \"arguments\": " + std::string(100'000, '[') + "</tool_call>";
    EXPECT_EQ(parsed(kQwen, {deep}), std::vector<ChatEvent>{said(deep)});
}

// A call of `syntax` with these arguments.
std::string call_text(ToolSyntax syntax, const std::string& arguments) {
    const CallForm form = call_form(syntax).value();
    std::string text;
    for (const CallPart& part : form.before) text += part.text;
    text += "f";
    for (const CallPart& part : form.between) text += part.text;
    text += arguments;
    for (const CallPart& part : form.behind) text += part.text;
    return text;
}

// Goal: what is told as a call has arguments that a client can parse, and that every template takes
// again when it comes back. Method: arguments that are an object, none, and something else, in each
// syntax. Oracle: the events; render() of a conversation with the call that was told.
TEST(OutputParser, ArgumentsThatAreNoObjectAreNoCall) {
    struct Arguments {
        const char* written;
        const char* told;  // Null: no call.
    };
    const Arguments kArguments[]{
        {R"({"id": 123456789012345678901234567890})", R"({"id": 123456789012345678901234567890})"},
        {"{}", "{}"},
        {"I would paint it", nullptr},
        {R"("x")", nullptr},
        {"[1]", nullptr},
        {"null", nullptr},
    };
    const std::unique_ptr<const ChatTemplate> qwen =
        chosen("<|im_start|> enable_thinking <tool_response>");
    for (const ToolSyntax syntax :
         {ToolSyntax::kJson, ToolSyntax::kDeepSeekV3, ToolSyntax::kDeepSeekV31}) {
        for (const Arguments& arguments : kArguments) {
            const std::string text = call_text(syntax, arguments.written);
            const std::vector<ChatEvent> events = parsed_in_parts({.tools = syntax}, text);
            if (arguments.told == nullptr) {
                for (const ChatEvent& event : events) EXPECT_EQ(event.kind, Kind::kContent) << text;
                EXPECT_THAT(events, testing::Not(testing::IsEmpty())) << text;
                continue;
            }
            ASSERT_THAT(events, ElementsAre(call("f", arguments.told))) << text;
            const auto rendered =
                qwen->render({{user("Go"), calling("", {{"1", "f", events[0].text}})}});
            EXPECT_TRUE(rendered.ok()) << rendered.error().message;
        }
    }
    // Blank ones.
    EXPECT_THAT(parsed_in_parts({.tools = ToolSyntax::kDeepSeekV3},
                                call_text(ToolSyntax::kDeepSeekV3, " \n")),
                ElementsAre(call("f", "{}")));
    EXPECT_THAT(parsed_in_parts({.tools = ToolSyntax::kDeepSeekV31},
                                call_text(ToolSyntax::kDeepSeekV31, "")),
                ElementsAre(call("f", "{}")));
    EXPECT_THAT(
        parsed_in_parts({.tools = ToolSyntax::kJson}, call_text(ToolSyntax::kJson, R"(" ")")),
        ElementsAre(call("f", "{}")));
    // An object that is written as a text is one.
    EXPECT_THAT(parsed_in_parts({.tools = ToolSyntax::kJson},
                                call_text(ToolSyntax::kJson, R"("{\"a\":1}")")),
                ElementsAre(call("f", R"({"a":1})")));
}

// Goal: a call is told as soon as its arguments begin, and they as they come. Method: a call in the
// form of each syntax, in parts. Oracle: the events of each part.
TEST(OutputParser, ArgumentsAreToldWhileTheyCome) {
    for (const ToolSyntax syntax : kJsonArguments) {
        const std::string text = call_text(syntax, R"({"a": "bc"})");
        const size_t open = text.find(R"({"a")");
        OutputParser parser({.tools = syntax});
        EXPECT_THAT(parser.append(text.substr(0, open)), ElementsAre());
        EXPECT_THAT(parser.append("{"),
                    ElementsAre(cut_call("f", ""), ChatEvent{Kind::kArguments, "{"}));
        EXPECT_THAT(parser.append(R"("a": "b)"),
                    ElementsAre(ChatEvent{Kind::kArguments, R"("a": "b)"}));
        EXPECT_THAT(parser.append(R"(c"})"),
                    ElementsAre(ChatEvent{Kind::kArguments, R"(c"})", "", true}));
        EXPECT_THAT(parser.append(text.substr(text.rfind('"') + 2)), ElementsAre());
        EXPECT_THAT(parser.finish(), ElementsAre());
    }
}

// A call whose name has come stays one: arguments that break, or are cut, are those that came.
TEST(OutputParser, ArgumentsThatBreakAreThoseThatCame) {
    for (const ToolSyntax syntax : kJsonArguments) {
        const OutputSyntax form{.tools = syntax};
        const std::string end(call_form(syntax).value().behind.back().text);
        const std::string whole = call_text(syntax, R"({"a": {"b": "\"}"}})");
        EXPECT_THAT(parsed_in_parts(form, whole), ElementsAre(call("f", R"({"a": {"b": "\"}"}})")));
        // Cut within them.
        EXPECT_THAT(parsed_in_parts(form, whole.substr(0, whole.find("}\"}}"))),
                    ElementsAre(cut_call("f", R"({"a": {"b": "\")")));
        // A mark of the end in a string is text, and elsewhere ends them.
        const std::string inner = "{\"a\": \"" + end + "\"}";
        EXPECT_THAT(parsed_in_parts(form, call_text(syntax, inner)), ElementsAre(call("f", inner)));
        EXPECT_THAT(parsed_in_parts(form, call_text(syntax, "{\"a\": " + end + " x")),
                    ElementsAre(call("f", "{\"a\": "), testing::_));
        // The quote behind the string is missing.
        const std::vector<ChatEvent> open =
            parsed_in_parts(form, call_text(syntax, "{\"a\": \"x\n"));
        ASSERT_EQ(open.size(), 1U) << open[1].text;
        EXPECT_TRUE(open[0].text.starts_with("{\"a\": \"x\n")) << open[0].text;
        EXPECT_TRUE(open[0].ends_call);
    }
    // One brace too many, which is text, and an end that is missing.
    EXPECT_THAT(parsed_in_parts(kQwen,
                                "<tool_call>{\"name\": \"f\", \"arguments\": {}}}\n<tool_call>"
                                "{\"name\": \"g\", \"arguments\": {}} and on"),
                ElementsAre(call("f", "{}"), said("}"), call("g", "{}"), said("and on")));
}

// The end of a call may be late, or missing: what a model says instead is not lost.
TEST(OutputParser, WhatStandsBehindArgumentsIsSaid) {
    for (const ToolSyntax syntax : kJsonArguments) {
        const OutputSyntax form{.tools = syntax};
        const std::string end(call_form(syntax).value().behind.back().text);
        const std::string whole = call_text(syntax, R"({"a": 1})");
        const std::string open = whole.substr(0, whole.rfind('1') + 2);
        const std::string closed = open + std::string(call_syntax(syntax)->arguments_end);
        for (const std::string& begin : {open, open + " ", closed, closed + " \n"}) {
            for (const std::string text : {"I `look`\n\n<it> {up}.", "`I` look", "{up}"}) {
                EXPECT_THAT(parsed_in_parts(form, begin + text + " \n" + end),
                            ElementsAre(call("f", R"({"a": 1})"), said(text)));
                // Cut.
                EXPECT_THAT(parsed_in_parts(form, begin + text + "\n"),
                            ElementsAre(call("f", R"({"a": 1})"), said(text)));
                EXPECT_THAT(parsed_in_parts(form, begin + text + " <"),
                            ElementsAre(call("f", R"({"a": 1})"), said(text + " <")));
            }
            EXPECT_THAT(parsed_in_parts(form, begin + end.substr(0, end.size() - 1)),
                        ElementsAre(call("f", R"({"a": 1})")));
        }
    }
    EXPECT_THAT(parsed_in_parts(kQwen,
                                "<tool_call>{\"name\": \"f\", \"arguments\": {}}\nAnd:\n<tool_call>"
                                "{\"name\": \"g\", \"arguments\": {}} so\n</tool_call>\n on"),
                ElementsAre(call("f", "{}"), said("And:"), call("g", "{}"), said("soon")));
    EXPECT_THAT(
        parsed_in_parts(
            kV31Calls,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{} And:\n"
            "<｜tool▁call▁begin｜>b<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ElementsAre(call("a", "{}"), said("And:"), call("b", "{}")));
}

// Only what the form has there closes a call, and only once; of text nothing is taken for it.
TEST(OutputParser, WhatClosesACallIsThatOfItsForm) {
    for (const ToolSyntax syntax : kJsonArguments) {
        const OutputSyntax form{.tools = syntax};
        const std::string whole = call_text(syntax, "{}");
        const std::string open = whole.substr(0, whole.rfind("{}") + 2);
        const std::string closer(call_syntax(syntax)->arguments_end);
        for (const char* text : {"```sh\nls\n```", "} x", "``", "}}"}) {
            EXPECT_THAT(parsed_in_parts(form, open + " " + closer + "\n" + text),
                        ElementsAre(call("f", "{}"), said(text)));
        }
        for (size_t size = 0; size < closer.size(); ++size) {
            EXPECT_THAT(parsed_in_parts(form, open + "\n" + closer.substr(0, size)),
                        ElementsAre(call("f", "{}")));
        }
    }
    EXPECT_THAT(parsed_in_parts({.tools = ToolSyntax::kDeepSeekV3},
                                call_text(ToolSyntax::kDeepSeekV3, "{} ``x")),
                ElementsAre(call("f", "{}"), said("``x\n```")));
}

// The call is an object, too: what it has behind its arguments is none of the text.
TEST(OutputParser, MembersBehindArgumentsAreNothing) {
    const std::string begin = "<tool_call>{\"name\": \"f\", \"arguments\": {}";
    for (const char* members :
         {",\"id\":\"1\"", "\n, \"a\": {\"b\": [1, {}]}, \"c\": \"}\\\"}</tool_call>\" \n", ","}) {
        for (const char* end : {"}</tool_call>", "}\n", "</tool_call>"}) {
            EXPECT_THAT(parsed_in_parts(kQwen, begin + members + end),
                        ElementsAre(call("f", "{}")));
            EXPECT_THAT(parsed_in_parts(kQwen, begin + members + end + begin + members + "} so"),
                        ElementsAre(call("f", "{}"), call("f", "{}"), said("so")));
        }
    }
    // Cut, and with a string that has no end.
    EXPECT_THAT(parsed_in_parts(kQwen, begin + ", \"id\": \"1"), ElementsAre(call("f", "{}")));
    EXPECT_THAT(parsed_in_parts(kQwen, begin + ", \"id\": \"1}\n</tool_call> so"),
                ElementsAre(call("f", "{}"), said("so")));
    // A form whose calls are no objects has none.
    EXPECT_THAT(parsed_in_parts(kV31Calls, call_text(ToolSyntax::kDeepSeekV31, "{}, so")),
                ElementsAre(call("f", "{}"), said(", so")));
}

TEST(OutputParser, WhatStandsBehindArgumentsIsSaidAtOnce) {
    OutputParser parser(kQwen);
    parser.append("<tool_call>{\"name\": \"f\", \"arguments\": {}");
    EXPECT_THAT(parser.append("}\n"), ElementsAre());
    EXPECT_THAT(parser.append("It is "), ElementsAre(said("It is")));
    EXPECT_THAT(parser.append("4.</tool"), ElementsAre(said(" 4.")));
    EXPECT_THAT(parser.append("s> "), ElementsAre(said("</tools>")));
}

// An answer that must be a call says no beginnings of marks where it is cut.
TEST(OutputParser, ACallThatMustComeIsCutToItsName) {
    for (const ToolSyntax syntax : kJsonArguments) {
        const OutputSyntax form{.tools = syntax, .must_call = true};
        const std::string text = call_text(syntax, "{\"a\": 1}");
        for (size_t size = 0; size < text.size(); ++size) {
            for (const ChatEvent& event : parsed(form, {text.substr(0, size)})) {
                EXPECT_EQ(event.kind, Kind::kToolCall) << text.substr(0, size);
                EXPECT_EQ(event.name, "f");
            }
        }
    }
    EXPECT_THAT(parsed_in_parts({.tools = ToolSyntax::kJson, .must_call = true},
                                "<tool_call>\n{\"name\": \"f\", \"argum"),
                ElementsAre(cut_call("f", "")));
}

TEST(OutputParser, CallWhoseEndIsMissingCountsIfItIsWhole) {
    EXPECT_THAT(parsed_in_parts(kQwen, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}"),
                ElementsAre(call("f", "{}")));
}

// Goal: text that is held back is looked at once, not anew with each token. Method: 600,000 parts
// (60,000 with a sanitizer) of a byte in each state that holds back; anew, these would take many
// minutes. Oracle: the events of the whole text.
TEST(OutputParser, WhatIsHeldBackCostsWhatItsBytesDo) {
    constexpr size_t kBytes = AFD_SANITIZED ? 60'000 : 600'000;
    const std::string breaks(kBytes, '\n');
    const std::string marks(kBytes, '<');
    struct Case {
        OutputSyntax syntax;
        std::string text;
        std::vector<ChatEvent> events;
    };
    const std::vector<Case> cases = {
        {kQwen, "a" + breaks + "b", {said("a" + breaks + "b")}},
        {kQwen, breaks + "<think>a</think>b", {thought("a"), said("b")}},
        {kQwen, "<think>a" + breaks + "</think>b", {thought("a"), said("b")}},
        {kQwen,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" + marks + "\"}}</tool_call>",
         {call("f", "{\"a\": \"" + marks + "\"}")}},
        {kQwen,
         "<tool_call>{\"name\": \"f\", \"arguments\": {}}" + breaks + "a" + breaks + marks,
         {call("f", "{}"), said("a" + breaks + marks)}},
        {kQwen,
         "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"a\": \"" + marks + "\"}" + marks,
         {call("f", "{}"), said(marks)}},
        {kV31Calls,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>" +
             breaks + "<｜tool▁calls▁end｜>",
         {call("a", "{}")}},
    };
    for (const Case& one : cases) {
        std::vector<std::string> bytes;
        for (const char byte : one.text) bytes.emplace_back(1, byte);
        EXPECT_TRUE(parsed(one.syntax, bytes) == one.events) << one.text.substr(0, 50);
    }
}

TEST(OutputParser, WithoutMarksToLookForAllIsContentAtOnce) {
    OutputParser parser({});
    EXPECT_THAT(parser.append("<think> <tool_call> \n"),
                ElementsAre(said("<think> <tool_call> \n")));
}

// Goal: a call in the form of call_form() is read as that call, and as nothing else.
TEST(OutputParser, ReadsCallsInTheFormThatIsAskedFor) {
    for (const ToolSyntax syntax : kJsonArguments) {
        const CallForm form = call_form(syntax).value();
        std::string text;
        for (const CallPart& part : form.before) text += part.text;
        text += "paint";
        for (const CallPart& part : form.between) text += part.text;
        text += R"({"color": "red"})";
        for (const CallPart& part : form.behind) text += part.text;
        const std::vector<ChatEvent> events = parsed({.tools = syntax}, {text});
        ASSERT_EQ(events.size(), 1U) << text;
        EXPECT_EQ(events[0], call("paint", R"({"color": "red"})"));
    }
    for (const ToolSyntax syntax : {ToolSyntax::kNone,
                                    ToolSyntax::kQwenCoder,
                                    ToolSyntax::kGlm,
                                    ToolSyntax::kMiniMax,
                                    ToolSyntax::kHarmony}) {
        EXPECT_FALSE(call_form(syntax).has_value());
    }
}

}  // namespace
}  // namespace afd::model
