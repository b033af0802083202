// SPDX-License-Identifier: Apache-2.0
#include "model/chat/message/chat_event.h"

namespace afd::model {

void add_text(ChatEvent::Kind kind, std::string_view text, std::vector<ChatEvent>& events) {
    if (text.empty()) return;
    if (!events.empty() && events.back().kind == kind) {
        events.back().text += text;
    } else {
        events.push_back({kind, std::string(text)});
    }
}

void end_call(std::vector<ChatEvent>& events) {
    const bool is_of_call = !events.empty() && (events.back().kind == ChatEvent::Kind::kArguments ||
                                                events.back().kind == ChatEvent::Kind::kToolCall);
    if (!is_of_call) events.push_back({ChatEvent::Kind::kArguments, ""});
    events.back().ends_call = true;
}

}  // namespace afd::model
