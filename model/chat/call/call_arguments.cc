// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/call_arguments.h"

#include <algorithm>

#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

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

size_t CallArguments::take(std::string_view text, std::span<const std::string_view> marks) {
    for (size_t i = 0; i < text.size(); ++i) {
        const bool may_be_mark = !is_in_string_ || is_broken_;
        const MarkInFront mark =
            may_be_mark ? mark_in_front(text.substr(i), marks) : MarkInFront::kNone;
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

std::string_view said_behind_arguments(std::string_view rest,
                                       std::span<const std::string_view> marks) {
    constexpr std::string_view kClosers = " \t\n\r}`";
    rest = strip_left(rest, kClosers);
    const bool is_mark = std::ranges::any_of(
        marks, [rest](std::string_view mark) { return mark.starts_with(rest); });
    return is_mark ? std::string_view() : rest;
}

}  // namespace afd::model
