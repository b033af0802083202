// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/chat_output.h"

#include <fmt/format.h>

#include "daemon/http/message/json_text.h"

namespace afd::daemon {

std::vector<std::string> ChatOutput::take(const std::vector<model::ChatEvent>& events) {
    std::vector<std::string> deltas;
    for (const model::ChatEvent& event : events) {
        if (is_over()) break;
        if (is_stream_) {
            deltas.push_back(delta_of(event));
        } else {
            keep(event);
        }
    }
    return deltas;
}

std::string ChatOutput::delta_of(const model::ChatEvent& event) {
    std::string delta;
    switch (event.kind) {
        case model::ChatEvent::Kind::kContent:
            delta = R"({"content":)";
            append_json_string(event.text, delta);
            break;
        case model::ChatEvent::Kind::kReasoning:
            delta = R"({"reasoning_content":)";
            append_json_string(event.text, delta);
            break;
        case model::ChatEvent::Kind::kToolCall:
            delta = R"({"tool_calls":[)" + call_of(event, true) + ']';
            break;
    }
    return delta + '}';
}

void ChatOutput::keep(const model::ChatEvent& event) {
    switch (event.kind) {
        case model::ChatEvent::Kind::kContent:
            content_ += event.text;
            return;
        case model::ChatEvent::Kind::kReasoning:
            reasoning_ += event.text;
            return;
        case model::ChatEvent::Kind::kToolCall:
            if (!calls_.empty()) calls_ += ',';
            calls_ += call_of(event, false);
            return;
    }
}

std::string ChatOutput::call_of(const model::ChatEvent& event, bool has_index) {
    std::string call = "{";
    if (has_index) {
        call += R"("index":)";
        append_json_number(num_calls_, call);
        call += ',';
    }
    call += R"("id":)";
    append_json_string(fmt::format("{}{:06x}", id_, num_calls_++), call);
    call += R"(,"type":"function","function":{"name":)";
    append_json_string(event.name, call);
    call += R"(,"arguments":)";
    append_json_string(event.text, call);
    return call + "}}";
}

std::string ChatOutput::message() const {
    std::string message = R"({"role":"assistant","content":)";
    // A message that only calls has no content.
    if (has_calls() && content_.empty()) {
        message += "null";
    } else {
        append_json_string(content_, message);
    }
    message += R"(,"refusal":null)";
    if (!reasoning_.empty()) {
        message += R"(,"reasoning_content":)";
        append_json_string(reasoning_, message);
    }
    if (has_calls()) message += R"(,"tool_calls":[)" + calls_ + ']';
    return message + '}';
}

}  // namespace afd::daemon
