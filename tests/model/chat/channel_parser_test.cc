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

// "r:" and "c:" in front of what is thought and said, which follows each other as it came.
std::string told(const std::vector<std::string>& parts) {
    ChannelParser parser;
    std::string all;
    ChatEvent::Kind last = ChatEvent::Kind::kToolCall;
    const auto add = [&](const std::vector<ChatEvent>& events) {
        for (const ChatEvent& event : events) {
            if (event.kind != last) all += event.kind == ChatEvent::Kind::kContent ? "c:" : "r:";
            last = event.kind;
            all += event.text;
        }
    };
    for (const std::string& part : parts) add(parser.append(part));
    add(parser.finish());
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
     "r:ac:br:c"},
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
}

}  // namespace
}  // namespace afd::model
