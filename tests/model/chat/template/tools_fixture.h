// SPDX-License-Identifier: Apache-2.0
#pragma once

// Conversations with tools that tests of templates share: two calls at once and their results, a
// call with a thought and arguments of each kind, calls before and behind an answer.

#include <string>
#include <vector>

#include "tests/model/chat/chat_fixture.h"

namespace afd::model {

inline const std::string kArguments =
    R"({"color":"réd <b>","layers":12345678901234567890123,"dry":true,"size":null,"tags":)"
    R"(["a","b"],"at":{"x":1.5}})";
inline const std::string kPaint =
    R"({"type":"function","function":{"name":"paint","description":" Paints it.\n","strict":)"
    R"(true,"parameters":{"type":"object","properties":{"color":{"type":"string",)"
    R"("description":"Which one. ","enum":["red","blue"],"default":"red"},"layers":{"type":)"
    R"("integer","default":2,"minimum":1},"size":{"type":["number","null"]},"tags":{"type":)"
    R"("array","items":{"type":"string"}},"at":{"type":"object","properties":{"x":{"type":)"
    R"("number"},"y":{"type":"number"}},"required":["x"]},"dry":{"type":"boolean","default":)"
    R"(false},"any":{"oneOf":[{"type":"string","description":"a name"},{"type":"integer",)"
    R"("default":3}]},"rows":{"type":"array","items":{"type":"object","properties":{"k":)"
    R"({"type":"string"}}}},"note":{"type":"string","nullable":true,"default":null}},)"
    R"("required":["color","at"],"additionalProperties":false}}})";

inline ChatMessage result_of(const std::string& id, const std::string& content) {
    ChatMessage made = result(content);
    made.tool_call_id = id;
    return made;
}

inline ChatMessage thinking(const std::string& content, const std::vector<ToolCall>& calls) {
    ChatMessage made = calling(content, calls);
    made.reasoning = "Hm.";
    return made;
}

inline Conversation with_tool(const std::vector<ChatMessage>& messages) {
    Conversation made{messages, {kTool}};
    made.date = "2026-11-27";
    return made;
}

inline const Conversation kTwoCalls = with_tool(
    {user("Go"),
     calling("", {{"functions.f:0", "f", R"({"a":1,"b":"x"})"}, {"functions.g:1", "g", "{}"}}),
     result_of("functions.f:0", "one"),
     result_of("functions.g:1", "two")});
inline const Conversation kWithPaint{{system("S"), user("Q")}, {kPaint, kTool}};

inline Conversation thoughtful(const std::string& said) {
    return with_tool({user("Q"),
                      thinking(said, {{"functions.paint:0", "paint", kArguments}}),
                      result_of("functions.paint:0", "done")});
}

inline Conversation later(const std::string& said) {
    return with_tool({user("Q"),
                      thinking(said, {{"functions.f:0", "f", "{}"}}),
                      result_of("functions.f:0", "1"),
                      assistant("Done."),
                      user("Q2"),
                      thinking("", {{"functions.f:1", "f", "{}"}}),
                      result_of("functions.f:1", "2")});
}

}  // namespace afd::model
