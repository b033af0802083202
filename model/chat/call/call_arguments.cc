// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_arguments.h"

#include <algorithm>

#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::string_view kClosers = " \t\n\r}`";

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
    if (!is_over_) {
        const size_t size = take(pending);
        add_text(ChatEvent::Kind::kArguments, std::string_view(pending).substr(0, size), events);
        pending.erase(0, size);
        if (!is_over_) return {};
        end_call(events);
    }
    return advance_behind(pending, events);
}

std::string_view CallArguments::advance_behind(std::string& pending,
                                               std::vector<ChatEvent>& events) {
    if (!has_said_) pending.erase(0, std::min(pending.find_first_not_of(kClosers), pending.size()));
    const std::string_view text = pending;
    const FoundMark end = first_mark(text, ends_, num_searched_);
    const bool has_end = !end.mark.empty();
    const size_t num_certain = has_end ? end.at : text.size() - num_held(text, ends_);
    const size_t num_new =
        strip_right(text.substr(num_searched_, num_certain - num_searched_), kBlanks).size();
    const size_t num_said = num_new == 0 ? 0 : num_searched_ + num_new;
    add_text(ChatEvent::Kind::kContent, text.substr(0, num_said), events);
    has_said_ = has_said_ || num_said > 0;
    num_searched_ = num_certain - num_said;
    pending.erase(0, has_end ? end.at : num_said);
    return end.mark;
}

void CallArguments::finish(std::string_view pending, std::vector<ChatEvent>& events) const {
    if (!is_over_) {
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
