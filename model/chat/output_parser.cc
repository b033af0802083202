// SPDX-License-Identifier: Apache-2.0
#include "model/chat/output_parser.h"

#include <algorithm>

#include "model/chat/chat_json.h"
#include "model/chat/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::string_view kBlanksAtStart = " \t\n\r\v\f";

constexpr std::string_view kNameEnd = "<｜tool▁sep｜>";

std::optional<ChatEvent> call_of(std::string_view name, std::string_view arguments) {
    const Result<std::string> read = call_arguments(arguments);
    if (!read.ok()) return std::nullopt;
    return ChatEvent{ChatEvent::Kind::kToolCall, read.value(), std::string(strip(name))};
}

// The type, the name, then the block of JSON that the format puts behind it.
std::optional<ChatEvent> read_deepseek_v3(std::string_view body) {
    constexpr std::string_view kOpen = "```json\n";
    constexpr std::string_view kClose = "```";
    const size_t separator = body.find(kNameEnd);
    if (separator == std::string_view::npos) return std::nullopt;
    body.remove_prefix(separator + kNameEnd.size());
    const size_t open = body.find(kOpen);
    const size_t close = body.rfind(kClose);
    if (open == std::string_view::npos || close < open + kOpen.size()) return std::nullopt;
    const size_t begin = open + kOpen.size();
    return call_of(body.substr(0, open), body.substr(begin, close - begin));
}

// Its name, then JSON.
std::optional<ChatEvent> read_deepseek_v31(std::string_view body) {
    const size_t separator = body.find(kNameEnd);
    if (separator == std::string_view::npos) return std::nullopt;
    return call_of(body.substr(0, separator), body.substr(separator + kNameEnd.size()));
}

std::optional<ChatEvent> read_call(ToolSyntax syntax, std::string_view body) {
    if (syntax == ToolSyntax::kDeepSeekV3) return read_deepseek_v3(body);
    if (syntax == ToolSyntax::kDeepSeekV31) return read_deepseek_v31(body);
    const auto call = json_call(std::string(body));
    if (!call.ok()) return std::nullopt;
    return ChatEvent{ChatEvent::Kind::kToolCall, call.value().arguments, call.value().name};
}

}  // namespace

OutputParser::OutputParser(const OutputSyntax& syntax) : syntax_(syntax) {
    if (syntax.tools == ToolSyntax::kJson) {
        call_begin_ = "<tool_call>";
        call_end_ = "</tool_call>";
    } else if (syntax.tools != ToolSyntax::kNone) {
        call_begin_ = "<｜tool▁calls▁begin｜>";
        call_end_ = "<｜tool▁call▁end｜>";
    }
    if (syntax.reasoning == ReasoningSyntax::kChannels) channels_.emplace();
    if (syntax.reasoning == ReasoningSyntax::kStarted) state_ = State::kThoughtStart;
    if (syntax.reasoning == ReasoningSyntax::kTagged) state_ = State::kStart;
}

std::vector<ChatEvent> OutputParser::append(std::string_view text) {
    if (channels_) return channels_->append(text);
    pending_ += text;
    std::vector<ChatEvent> events;
    while (advance(events)) {
    }
    return events;
}

std::vector<ChatEvent> OutputParser::finish() {
    if (channels_) return channels_->finish();
    std::vector<ChatEvent> events;
    const bool is_reasoning = state_ == State::kReasoning;
    if (state_ == State::kCall) {
        if (syntax_.tools != ToolSyntax::kJson || !add_call(pending_, events)) {
            add(ChatEvent::Kind::kContent, unread_call(pending_, ""), events);
        }
    } else if (state_ == State::kBehind || state_ == State::kBetween || has_call_) {
        // Behind a thought or a call line breaks are no text.
        if (!strip(pending_).empty()) add(ChatEvent::Kind::kContent, pending_, events);
    } else {
        add(is_reasoning ? ChatEvent::Kind::kReasoning : ChatEvent::Kind::kContent,
            pending_,
            events);
    }
    pending_.clear();
    num_searched_ = 0;
    return events;
}

void OutputParser::enter(State state) {
    state_ = state;
    num_searched_ = 0;
}

bool OutputParser::advance(std::vector<ChatEvent>& events) {
    switch (state_) {
        case State::kStart:
            return advance_start();
        case State::kReasoning:
            return advance_text(ChatEvent::Kind::kReasoning, kThinkEnd, State::kBehind, events);
        case State::kThoughtStart:
            return advance_blanks(State::kReasoning);
        case State::kBehind:
            return advance_blanks(State::kContent);
        case State::kContent:
            return advance_text(ChatEvent::Kind::kContent, call_begin_, State::kCall, events);
        case State::kCall:
            return advance_call(events);
        case State::kBetween:
            return advance_between();
    }
    return false;
}

// What is behind the blanks in front.
std::string_view OutputParser::skip_blanks(std::string_view blanks) {
    num_searched_ = std::min(pending_.find_first_not_of(blanks, num_searched_), pending_.size());
    return std::string_view(pending_).substr(num_searched_);
}

bool OutputParser::advance_start() {
    const std::string_view text = skip_blanks(kBlanksAtStart);
    if (text.starts_with(kThink)) {
        pending_ = std::string(text.substr(kThink.size()));
        enter(State::kThoughtStart);
        return true;
    }
    if (kThink.starts_with(text)) return false;
    enter(State::kContent);
    return true;
}

bool OutputParser::advance_blanks(State next) {
    pending_.erase(0, std::min(pending_.find_first_not_of(kBlanks), pending_.size()));
    if (pending_.empty()) return false;
    enter(next);
    return true;
}

// Text up to `mark`, the line breaks before which are dropped.
bool OutputParser::advance_text(ChatEvent::Kind kind,
                                std::string_view mark,
                                State next,
                                std::vector<ChatEvent>& events) {
    if (mark.empty()) {
        add(kind, pending_, events);
        pending_.clear();
        return false;
    }
    const std::string_view text = pending_;
    const size_t at = text.find(mark, num_searched_);
    if (at != std::string_view::npos) {
        add(kind, strip_right(text.substr(0, at), kBlanks), events);
        pending_.erase(0, at + mark.size());
        enter(next);
        return true;
    }
    const size_t num_certain = text.size() - num_held(text, mark);
    const size_t num_new =
        strip_right(text.substr(num_searched_, num_certain - num_searched_), kBlanks).size();
    const size_t size = num_new == 0 ? 0 : num_searched_ + num_new;
    add(kind, text.substr(0, size), events);
    pending_.erase(0, size);
    num_searched_ = num_certain - size;
    return false;
}

bool OutputParser::advance_call(std::vector<ChatEvent>& events) {
    const size_t end = pending_.find(call_end_, num_searched_);
    if (end == std::string::npos) {
        num_searched_ = pending_.size() - num_held(pending_, call_end_);
        return false;
    }
    const std::string body = pending_.substr(0, end);
    if (!add_call(body, events)) {
        add(ChatEvent::Kind::kContent, unread_call(body, call_end_), events);
    }
    has_call_ = true;
    pending_.erase(0, end + call_end_.size());
    enter(syntax_.tools == ToolSyntax::kJson ? State::kBehind : State::kBetween);
    return true;
}

bool OutputParser::advance_between() {
    constexpr std::string_view kNext = "<｜tool▁call▁begin｜>";
    constexpr std::string_view kLast = "<｜tool▁calls▁end｜>";
    const std::string_view text = skip_blanks(kBlanks);
    if (text.starts_with(kNext)) {
        enter(State::kCall);
    } else if (text.starts_with(kLast)) {
        pending_ = std::string(text.substr(kLast.size()));
        enter(State::kBehind);
    } else if (kNext.starts_with(text) || kLast.starts_with(text)) {
        return false;
    } else {
        enter(State::kContent);
    }
    return true;
}

void OutputParser::add(ChatEvent::Kind kind,
                       std::string_view text,
                       std::vector<ChatEvent>& events) {
    if (text.empty()) return;
    if (!events.empty() && events.back().kind == kind) {
        events.back().text += text;
    } else {
        events.push_back({kind, std::string(text)});
    }
}

std::string OutputParser::unread_call(std::string_view body, std::string_view end) const {
    // One mark begins all calls of DeepSeek.
    const bool has_begin = syntax_.tools == ToolSyntax::kJson || !has_call_;
    return std::string(has_begin ? call_begin_ : "").append(body).append(end);
}

bool OutputParser::add_call(std::string_view body, std::vector<ChatEvent>& events) const {
    constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
    if (syntax_.tools != ToolSyntax::kJson) {
        const size_t begin = body.find(kBegin);
        if (begin == std::string_view::npos) return false;
        body.remove_prefix(begin + kBegin.size());
    }
    std::optional<ChatEvent> call = read_call(syntax_.tools, body);
    if (!call || call->name.empty()) return false;
    events.push_back(*std::move(call));
    return true;
}

}  // namespace afd::model
