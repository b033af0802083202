// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/chat_output.h"

#include <fmt/format.h>

#include "daemon/http/message/json_text.h"

namespace afd::daemon {

using model::ChatEvent;

std::vector<std::string> ChatOutput::take(const std::vector<ChatEvent>& events) {
    std::vector<std::string> deltas;
    for (const ChatEvent& event : events) {
        if (is_over()) break;
        const bool is_call = event.kind == ChatEvent::Kind::kToolCall;
        if (is_call) ++num_calls_;
        has_said_behind_ = !is_call && event.kind != ChatEvent::Kind::kArguments;
        if (!has_said_behind_) is_in_call_ = !event.ends_call;
        if (!is_stream_) {
            keep(event);
        } else if (is_call || !event.text.empty()) {
            deltas.push_back(delta_of(event));
        }
    }
    return deltas;
}

std::string ChatOutput::delta_of(const ChatEvent& event) const {
    const uint64_t index = num_calls_ - 1;
    std::string delta;
    switch (event.kind) {
        case ChatEvent::Kind::kContent:
            delta = R"({"content":)";
            append_json_string(event.text, delta);
            return delta + '}';
        case ChatEvent::Kind::kReasoning:
            delta = R"({"reasoning_content":)";
            append_json_string(event.text, delta);
            return delta + '}';
        case ChatEvent::Kind::kToolCall:
            return fmt::format(
                R"({{"tool_calls":[{{"index":{},{}}}]}})", index, call_text(index, event));
        case ChatEvent::Kind::kArguments:
            append_json_string(event.text, delta);
            return fmt::format(
                R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})", index, delta);
    }
    return delta;
}

void ChatOutput::keep(const ChatEvent& event) {
    switch (event.kind) {
        case ChatEvent::Kind::kContent:
            content_ += event.text;
            return;
        case ChatEvent::Kind::kReasoning:
            reasoning_ += event.text;
            return;
        case ChatEvent::Kind::kToolCall:
            calls_.push_back(event);
            return;
        case ChatEvent::Kind::kArguments:
            calls_.back().text += event.text;
            return;
    }
}

std::string ChatOutput::call_text(uint64_t index, const ChatEvent& call) const {
    std::string text = R"("id":)";
    append_json_string(fmt::format("{}{:06x}", id_, index), text);
    text += R"(,"type":"function","function":{"name":)";
    append_json_string(call.name, text);
    text += R"(,"arguments":)";
    append_json_string(call.text, text);
    return text + '}';
}

std::string ChatOutput::message() const {
    std::string message = R"({"role":"assistant","content":)";
    // A message that only calls has no content.
    if (!calls_.empty() && content_.empty()) {
        message += "null";
    } else {
        append_json_string(content_, message);
    }
    message += R"(,"refusal":null)";
    if (!reasoning_.empty()) {
        message += R"(,"reasoning_content":)";
        append_json_string(reasoning_, message);
    }
    if (calls_.empty()) return message + '}';
    message += R"(,"tool_calls":[)";
    for (size_t i = 0; i < calls_.size(); ++i) {
        message += i == 0 ? "{" : ",{";
        message += call_text(i, calls_[i]) + '}';
    }
    return message + "]}";
}

}  // namespace afd::daemon
