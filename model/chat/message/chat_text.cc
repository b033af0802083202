// SPDX-License-Identifier: Apache-2.0
#include "model/chat/message/chat_text.h"

#include <algorithm>

#include "proto/failure.h"

namespace afd::model {

std::string_view strip_right(std::string_view text, std::string_view set) {
    return text.substr(0, text.find_last_not_of(set) + 1);
}

std::string_view strip_left(std::string_view text, std::string_view set) {
    const size_t begin = text.find_first_not_of(set);
    return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view strip(std::string_view text) {
    return strip_left(strip_right(text));
}

size_t num_held(std::string_view text, std::string_view mark) {
    // The longest first: what a shorter one leaves in front would be taken for text.
    for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
        if (text.ends_with(mark.substr(0, size))) return size;
    }
    return 0;
}

size_t num_held(std::string_view text, std::span<const std::string_view> marks) {
    size_t most = 0;
    for (const std::string_view mark : marks) most = std::max(most, num_held(text, mark));
    return most;
}

FoundMark first_mark(std::string_view text, std::span<const std::string_view> marks, size_t from) {
    FoundMark first;
    for (const std::string_view mark : marks) {
        const size_t at = text.find(mark, from);
        if (at < first.at) first = {at, mark};
    }
    return first;
}

Sayable sayable(std::string_view text,
                std::span<const std::string_view> marks,
                size_t& num_searched) {
    const FoundMark end = first_mark(text, marks, num_searched);
    const size_t num_certain = end.mark.empty() ? text.size() - num_held(text, marks) : end.at;
    const size_t num_new =
        strip_right(text.substr(num_searched, num_certain - num_searched), kBlanks).size();
    const size_t num_said = num_new == 0 ? 0 : num_searched + num_new;
    num_searched = num_certain - num_said;
    return {num_said, end};
}

Answer split_reasoning(const ChatMessage& message) {
    constexpr std::string_view kOpen = "<think>";
    constexpr std::string_view kClose = "</think>";
    if (!message.reasoning.empty()) return {message.reasoning, message.content};
    const std::string_view content = message.content;
    const size_t first_close = content.find(kClose);
    if (first_close == std::string_view::npos) return {"", message.content};
    std::string_view thought = strip_right(content.substr(0, first_close), "\n");
    const size_t open = thought.rfind(kOpen);
    if (open != std::string_view::npos) thought.remove_prefix(open + kOpen.size());
    const size_t last_close = content.rfind(kClose);
    return {std::string(strip_left(thought, "\n")),
            std::string(strip_left(content.substr(last_close + kClose.size()), "\n"))};
}

int last_user_index(const Conversation& conversation) {
    for (size_t i = conversation.messages.size(); i-- > 0;) {
        if (conversation.messages[i].role == ChatRole::kUser) return static_cast<int>(i);
    }
    return -1;
}

int last_plain_answer(const Conversation& conversation) {
    for (size_t i = conversation.messages.size(); i-- > 0;) {
        const ChatMessage& message = conversation.messages[i];
        const bool is_answer = message.role == ChatRole::kAssistant;
        if (is_answer && message.tool_calls.empty()) return static_cast<int>(i);
    }
    return -1;
}

Result<> refuse_tools(const Conversation& conversation, std::string_view template_name) {
    bool has_tools = !conversation.tools.empty();
    for (const ChatMessage& message : conversation.messages) {
        has_tools |= message.role == ChatRole::kTool || !message.tool_calls.empty();
    }
    if (!has_tools) return {};
    return unimplemented(
        "the chat template of this model ({}) has no place for tools: leave out "
        "tools and messages about them",
        with(template_name));
}

Result<> refuse_later_systems(const Conversation& conversation, std::string_view template_name) {
    for (size_t i = 1; i < conversation.messages.size(); ++i) {
        if (conversation.messages[i].role != ChatRole::kSystem) continue;
        return invalid_argument(
            "messages[{}] is of the system: in the chat template of this model ({}) only the first "
            "may be",
            with(i, template_name));
    }
    return {};
}

Result<> refuse_results_without_calls(const Conversation& conversation,
                                      std::string_view template_name) {
    bool has_calls = false;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
        const ChatMessage& message = conversation.messages[i];
        if (message.role == ChatRole::kAssistant) has_calls = !message.tool_calls.empty();
        if (message.role != ChatRole::kTool || has_calls) continue;
        return invalid_argument(
            "messages[{}] is of a tool: in the chat template of this model ({}) it must follow an "
            "answer of the assistant with tool_calls",
            with(i, template_name));
    }
    return {};
}

}  // namespace afd::model
