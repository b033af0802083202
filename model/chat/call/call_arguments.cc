// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_arguments.h"

#include <algorithm>

#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

void drop_blanks(std::string& text) {
    text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
}

// Whether one of `marks` begins there, or may, as far as the text has come.
enum class MarkInFront { kNone, kUncertain, kBegins };

MarkInFront mark_in_front(std::string_view text, std::span<const std::string_view> marks) {
    MarkInFront found = MarkInFront::kNone;
    for (const std::string_view mark : marks) {
        if (text.starts_with(mark)) return MarkInFront::kBegins;
        if (mark.starts_with(text)) found = MarkInFront::kUncertain;
    }
    return found;
}

}  // namespace

std::string_view CallArguments::advance(std::string& pending, std::vector<ChatEvent>& events) {
    if (state_ == State::kArguments) advance_arguments(pending, events);
    if (state_ == State::kClosing) advance_closing(pending);
    if (state_ == State::kMembers) advance_members(pending);
    return state_ == State::kBehind ? advance_behind(pending, events) : std::string_view();
}

void CallArguments::advance_arguments(std::string& pending, std::vector<ChatEvent>& events) {
    const size_t size = take(pending);
    add_text(ChatEvent::Kind::kArguments, std::string_view(pending).substr(0, size), events);
    pending.erase(0, size);
    if (!is_over_) return;
    end_call(events);
    state_ = State::kClosing;
}

void CallArguments::advance_closing(std::string& pending) {
    drop_blanks(pending);
    const bool is_closed = pending.starts_with(closer_);
    if (!is_closed && closer_.starts_with(pending)) return;
    const bool has_members = closer_ == "}" && pending.starts_with(',');
    if (is_closed) pending.erase(0, closer_.size());
    depth_ = 1;  // The brace of the call.
    is_over_ = false;
    state_ = has_members ? State::kMembers : State::kBehind;
}

void CallArguments::advance_members(std::string& pending) {
    pending.erase(0, take(pending));
    if (is_over_) state_ = State::kBehind;
}

std::string_view CallArguments::advance_behind(std::string& pending,
                                               std::vector<ChatEvent>& events) {
    if (!has_said_) drop_blanks(pending);
    const auto [num_said, end] = sayable(pending, ends_, num_searched_);
    add_text(ChatEvent::Kind::kContent, std::string_view(pending).substr(0, num_said), events);
    has_said_ = has_said_ || num_said > 0;
    pending.erase(0, end.mark.empty() ? num_said : end.at);
    return end.mark;
}

void CallArguments::finish(std::string_view pending, std::vector<ChatEvent>& events) const {
    if (state_ == State::kArguments) {
        add_text(ChatEvent::Kind::kArguments, pending, events);
    } else if (has_said_ && !strip(pending).empty()) {
        add_text(ChatEvent::Kind::kContent, pending, events);
    }
}

size_t CallArguments::take(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
        const bool may_be_mark = !is_in_string_ || is_broken_;
        const MarkInFront mark =
            may_be_mark ? mark_in_front(text.substr(i), ends_) : MarkInFront::kNone;
        is_over_ = mark == MarkInFront::kBegins;
        if (mark != MarkInFront::kNone) return i;
        take_byte(text[i]);
        if (is_over_) return i + 1;
    }
    return text.size();
}

void CallArguments::take_byte(char byte) {
    if (is_in_string_) {
        is_broken_ = is_broken_ || static_cast<unsigned char>(byte) < ' ';
        is_in_string_ = is_escaped_ || byte != '"';
        is_escaped_ = !is_escaped_ && byte == '\\';
        return;
    }
    if (byte == '"') is_in_string_ = true;
    if (byte == '{' || byte == '[') ++depth_;
    if (byte == '}' || byte == ']') is_over_ = --depth_ == 0;
}

}  // namespace afd::model
