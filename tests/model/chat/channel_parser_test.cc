// SPDX-License-Identifier: Apache-2.0
//
// Goal: what gpt-oss thinks and says is told apart, in whatever parts it comes. Method: whole
// texts, one byte at a time, and cut at every place. Oracle: written by hand.
#include "model/chat/channel_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/chat/output_parser.h"

namespace afd::model {
namespace {

// "r:" and "c:" in front of what is thought and said, which follows each other as it came, and of a
// call "t:", its name and arguments.
std::string told(const std::vector<std::string>& parts,
                 bool reads_calls = false,
                 bool was_cut = false,
                 bool says_one = false) {
    ChannelParser parser(reads_calls, says_one);
    std::string all;
    ChatEvent::Kind last = ChatEvent::Kind::kToolCall;
    const auto add = [&](const std::vector<ChatEvent>& events) {
        for (const ChatEvent& event : events) {
            const bool is_call = event.kind == ChatEvent::Kind::kToolCall ||
                                 event.kind == ChatEvent::Kind::kArguments;
            if (event.kind == ChatEvent::Kind::kToolCall) all += "t:" + event.name;
            if (!is_call && event.kind != last) {
                all += event.kind == ChatEvent::Kind::kContent ? "c:" : "r:";
            }
            last = event.kind;
            all += event.text;
        }
    };
    for (const std::string& part : parts) add(parser.append(part));
    add(parser.finish(was_cut));
    return all;
}

struct Said {
    const char* text;
    const char* expected;
};

const Said kSaid[] = {
    {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
     "r:Hm.c:Yes."},
    {"<|channel|>final<|message|>Yes.<|return|>", "c:Yes."},
    {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b"
     "<|end|><|start|>assistant<|channel|>analysis<|message|>c<|end|>",
     "r:ac:br:\nc"},
    // Messages of one kind are lines, whatever is between them; one without a text is none.
    {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>"
     "Here it is.<|return|>",
     "c:I look.\nHere it is."},
    {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|><|end|>"
     "<|start|>assistant<|channel|>analysis<|message|>b<|channel|>final<|message|>c",
     "r:a\nbc:c"},
    {"Plain<|end|>plainer", "c:Plain\nplainer"},
    {"Plain<|end|>t", "c:Plain\nt"},
    // Without the end of a message, and with a constraint in the header.
    {"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final <|constrain|>json"
     "<|message|>{}",
     "r:ac:{}"},
    {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "r:ac:b"},
    // A call, though no tool was offered: said.
    {" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "c:{}"},
    {"<|message|>Yes <|not a mark|> and 1 < 2 <", "c:Yes <|not a mark|> and 1 < 2 <"},
    // Cut off by max_tokens.
    {"<|channel|>analysis<|message|>Hm", "r:Hm"},
    {"<|channel|>anal", ""},
    {"\n<|channel|>anal", ""},
    {" to=functions.f<|channel|>commentary json", ""},
    // What is no header stays none, whatever comes behind it.
    {"Plain <|message|>x", "c:Plain <|message|>x"},
    {"", ""},
    // No header at all.
    {"Plainly said.", "c:Plainly said."},
};

TEST(ChannelParser, TellsThoughtsFromWhatIsSaid) {
    for (const Said& said : kSaid) EXPECT_EQ(told({said.text}), said.expected) << said.text;
}

TEST(ChannelParser, InWhateverPartsItComes) {
    for (const Said& said : kSaid) {
        const std::string text = said.text;
        std::vector<std::string> bytes;
        for (const char byte : text) bytes.emplace_back(1, byte);
        EXPECT_EQ(told(bytes), said.expected) << text;
        for (size_t i = 0; i < text.size(); ++i) {
            EXPECT_EQ(told({text.substr(0, i), text.substr(i)}), said.expected) << text << i;
        }
    }
}

const Said kCalls[] = {
    {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather <|constrain|>json<|message|>{\"a\": \"é\"}<|call|>",
     "r:Hm.t:get_weather{\"a\": \"é\"}"},
    // The mark that ends an answer is not part of its text.
    {"<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}", "t:f{}"},
    {" to=functions.f<|channel|>commentary json<|message|> <|call|>", "t:f{}"},
    {"<|start|>assistant to=functions.a.b-c<|channel|>analysis<|message|>{}<|end|>", "t:a.b-c{}"},
    // Something is announced, and two calls follow each other.
    {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"a\": [1, {\"b\": 2}]}<|call|><|start|>"
     "assistant<|channel|>commentary to=functions.g json<|message|>{}<|call|><|start|>assistant"
     "<|channel|>final<|message|>Done.",
     "c:I look.t:f{\"a\": [1, {\"b\": 2}]}t:g{}c:\nDone."},
    // No calls: not of a function that was offered, not whole, or no object.
    {"<|channel|>commentary to=browser.search<|message|>{}<|call|>", "c:{}"},
    // Cut in its arguments, or by a mark that is not in a string.
    {"<|channel|>commentary to=functions.f json<|message|>{\"a\": ", "t:f{\"a\": "},
    {"<|channel|>commentary to=functions.f json<|message|>{\"a\": "
     "<|call|><|channel|>final<|message|>x",
     "t:f{\"a\": c:x"},
    {"<|channel|>commentary to=functions.f json<|message|> {\"a\": \"<|call|>\"} \n<|call|>",
     "t:f{\"a\": \"<|call|>\"}"},
    // What is said behind them is not lost.
    {"<|channel|>commentary to=functions.f json<|message|>{}\n`I look` <b>up.\n<|call|>"
     "<|channel|>final<|message|>x",
     "t:f{}c:`I look` <b>up.\nx"},
    {"<|channel|>commentary to=functions.f json<|message|>{}\n```sh\nls\n```<|call|>",
     "t:f{}c:```sh\nls\n```"},
    {"<|channel|>commentary to=functions.f json<|message|>{}}<|call|>", "t:f{}c:}"},
    {"<|channel|>commentary to=functions.f json<|message|>{} I "
     "look.<|channel|>analysis<|message|>x",
     "t:f{}c:I look.r:x"},
    {"<|channel|>commentary to=functions.f json<|message|>{} 1 <", "t:f{}c:1 <"},
    {"<|channel|>commentary to=functions.f json<|message|>{} <|ca", "t:f{}"},
    {"<|channel|>commentary to=functions.f<|message|>[1]<|call|><|channel|>final<|message|>x",
     "c:<|channel|>commentary to=functions.f<|message|>[1]<|call|>\nx"},
    {"<|channel|>commentary to=functions. json<|message|>{}<|call|>", "c:{}"},
    {"<|channel|>commentary to=functions.f", ""},
};

TEST(ChannelParser, TellsCallsWhereToolsWereOffered) {
    for (const Said& said : kCalls) {
        const std::string text = said.text;
        std::vector<std::string> bytes;
        for (const char byte : text) bytes.emplace_back(1, byte);
        EXPECT_EQ(told({text}, true), said.expected) << text;
        EXPECT_EQ(told(bytes, true), said.expected) << text;
        for (size_t i = 0; i < text.size(); ++i) {
            EXPECT_EQ(told({text.substr(0, i), text.substr(i)}, true), said.expected) << text << i;
        }
    }
    for (const Said& said : kSaid) {
        const std::string text = said.text;
        if (text.find("functions.") != std::string::npos) continue;
        EXPECT_EQ(told({text}, true), said.expected) << text;
    }
}

// Marks in the text of an answer that has a format are part of a value.
TEST(ChannelParser, NothingEndsTheOneMessageThatIsSaid) {
    const std::string value = R"("a<|end|> <|start|>assistant<|channel|>analysis<|message|>b")";
    const std::string text =
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>" +
        value;
    for (size_t i = 0; i < text.size(); ++i) {
        const std::vector<std::string> parts = {text.substr(0, i), text.substr(i)};
        EXPECT_EQ(told(parts, false, false, true), "r:Hm.c:" + value) << i;
    }
}

// What nobody has written is no argument, unless the model has ended its call.
TEST(ChannelParser, ACallThatIsCutBeforeItsArgumentsIsNothing) {
    const std::string header = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
    for (const std::string& text : {header, header + " \n"}) {
        for (size_t i = 0; i <= text.size(); ++i) {
            const std::vector<std::string> parts = {text.substr(0, i), text.substr(i)};
            EXPECT_EQ(told(parts, true, true), "") << i;
            EXPECT_EQ(told(parts, true, false), "t:f{}") << i;
        }
    }
    EXPECT_EQ(told({header + "<|call|>"}, true, true), "t:f{}");
    EXPECT_EQ(told({header + "{"}, true, true), "t:f{");
    EXPECT_EQ(told({header + "[1]"}, true, true), "c:" + header + "[1]");
}

// Arguments are looked at once, not anew with each token.
TEST(ChannelParser, ACallThatIsHeldBackCostsWhatItsBytesDo) {
    const std::string arguments = "{\"a\": \"" + std::string(600'000, '<') + "\"}";
    const std::string text =
        "<|channel|>commentary to=functions.f json<|message|>" + arguments + "<|call|>";
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    EXPECT_TRUE(told(bytes, true) == "t:f" + arguments);
}

// A header has at most 1024 bytes: what is longer is said, and what comes behind it is read again.
TEST(ChannelParser, AHeaderWithoutAnEndIsSaid) {
    const std::string behind = "<|message|>b<|end|><|channel|>analysis<|message|>c";
    for (const std::string& begin : {std::string("<|channel|>final "), std::string(" to=f ")}) {
        const std::string longest = begin + std::string(1024 - begin.size(), 'x');
        for (const std::string& header : {longest, longest + "x"}) {
            const bool is_header = header.size() == 1024;
            const std::string text = header + behind;
            const std::string expected = is_header ? "c:br:c" : "c:" + header + "<|message|>br:c";
            std::vector<std::string> bytes;
            for (const char byte : text) bytes.emplace_back(1, byte);
            EXPECT_EQ(told({text}), expected);
            EXPECT_EQ(told(bytes), expected);
            for (size_t i = 1000; i < text.size(); ++i) {
                EXPECT_EQ(told({text.substr(0, i), text.substr(i)}), expected) << i;
            }
        }
    }
    EXPECT_EQ(told({std::string(5000, ' ') + "<|channel|>"}), "c:" + std::string(5000, ' '));
}

TEST(ChannelParser, TellsWhatIsCertainAtOnce) {
    ChannelParser parser;
    const auto one = parser.append("<|channel|>final<|message|>Yes<|e");
    ASSERT_EQ(one.size(), 1U);
    EXPECT_EQ(one.front().text, "Yes");
}

TEST(ChannelParser, IsWhatAnOutputParserOfChannelsUses) {
    OutputParser parser({.reasoning = ReasoningSyntax::kChannels});
    const auto events = parser.append("<|channel|>analysis<|message|>Hm.<|end|>");
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events.front(), (ChatEvent{ChatEvent::Kind::kReasoning, "Hm."}));
    EXPECT_TRUE(parser.finish().empty());
    OutputParser of_calls({.reasoning = ReasoningSyntax::kChannels, .tools = ToolSyntax::kHarmony});
    const auto calls =
        of_calls.append("<|channel|>commentary to=functions.f json<|message|>{}<|call|>");
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls.front(), (ChatEvent{ChatEvent::Kind::kToolCall, "", "f"}));
    EXPECT_EQ(calls.back(), (ChatEvent{ChatEvent::Kind::kArguments, "{}", "", true}));
}

}  // namespace
}  // namespace afd::model
