// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of what a model says share: events, and a parser that is given a text in parts.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/chat/output_parser.h"

namespace afd::model {

inline ChatEvent thought(const std::string& text) {
    return {ChatEvent::Kind::kReasoning, text};
}
inline ChatEvent said(const std::string& text) {
    return {ChatEvent::Kind::kContent, text};
}
inline ChatEvent call(const std::string& name, const std::string& arguments) {
    return {ChatEvent::Kind::kToolCall, arguments, name, true};
}
// One whose end has not come.
inline ChatEvent cut_call(const std::string& name, const std::string& arguments) {
    return {ChatEvent::Kind::kToolCall, arguments, name, false};
}

// The events of `parts`; runs of one kind of text as one, and calls with all of their arguments.
inline std::vector<ChatEvent> parsed(const OutputSyntax& syntax,
                                     const std::vector<std::string>& parts) {
    OutputParser parser(syntax);
    std::vector<ChatEvent> all;
    const auto add = [&all](const std::vector<ChatEvent>& events) {
        for (const ChatEvent& event : events) {
            const bool is_argument = event.kind == ChatEvent::Kind::kArguments;
            const bool is_more = !all.empty() && event.kind != ChatEvent::Kind::kToolCall &&
                                 all.back().kind == event.kind;
            if (is_argument) {
                EXPECT_FALSE(all.empty() || all.back().ends_call) << event.text;
            }
            if (is_more || is_argument) {
                all.back().text += event.text;
                all.back().ends_call = event.ends_call;
            } else {
                all.push_back(event);
            }
        }
    };
    for (const std::string& part : parts) add(parser.append(part));
    add(parser.finish());
    return all;
}

// Goal: the events do not depend on the parts. Method: each byte by itself, and every cut into two
// and three parts. Oracle: those of the whole text, which the caller knows.
inline std::vector<ChatEvent> parsed_in_parts(const OutputSyntax& syntax, const std::string& text) {
    const std::vector<ChatEvent> whole = parsed(syntax, {text});
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    EXPECT_EQ(parsed(syntax, bytes), whole) << "byte by byte";
    for (size_t cut = 0; cut <= text.size(); ++cut) {
        EXPECT_EQ(parsed(syntax, {text.substr(0, cut), text.substr(cut)}), whole) << cut;
        const size_t second = cut + (text.size() - cut) / 2;
        EXPECT_EQ(
            parsed(syntax,
                   {text.substr(0, cut), text.substr(cut, second - cut), text.substr(second)}),
            whole)
            << cut << ", " << second;
    }
    return whole;
}

}  // namespace afd::model
