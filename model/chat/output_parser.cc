// SPDX-License-Identifier: Apache-2.0
#include "model/chat/output_parser.h"

#include <algorithm>

#include "model/chat/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::string_view kBlanksAtStart = " \t\n\r\v\f";

}  // namespace

OutputParser::OutputParser(const OutputSyntax& syntax)
    : types_(syntax.types ? syntax.types : std::make_shared<const ParameterTypes>()),
      calls_(call_syntax(syntax.tools)) {
    if (syntax.reasoning == ReasoningSyntax::kChannels) {
        channels_.emplace(syntax.tools == ToolSyntax::kHarmony);
    }
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
        if (!calls_->closes_itself || !add_call(pending_, events)) {
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
    follows_call_ = state_ == State::kBetween;
    has_parameter_ = false;
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
            return advance_text(ChatEvent::Kind::kContent,
                                calls_ == nullptr ? "" : calls_->begin,
                                State::kCall,
                                events);
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
    const size_t end = find_call_end();
    if (end == std::string::npos) return false;
    const std::string body = pending_.substr(0, end);
    if (!add_call(body, events)) {
        add(ChatEvent::Kind::kContent, unread_call(body, calls_->end), events);
    }
    has_call_ = true;
    pending_.erase(0, end + calls_->end.size());
    enter(calls_->next.empty() ? State::kBehind : State::kBetween);
    return true;
}

size_t OutputParser::find_call_end() {
    const std::string_view text = pending_;
    for (;;) {
        const size_t end = text.find(calls_->end, num_searched_);
        if (end == std::string_view::npos) {
            num_searched_ = text.size() - num_held(text, calls_->end);
            return end;
        }
        if (closes_call(text.substr(0, end))) return end;
        num_searched_ = end + calls_->end.size();
    }
}

bool OutputParser::closes_call(std::string_view body) {
    if (calls_->parameter.empty()) return true;
    has_parameter_ = has_parameter_ || body.find(calls_->parameter) != std::string_view::npos;
    if (!has_parameter_) return true;
    for (size_t i = calls_->closers.size(); i-- > 0;) {
        body = strip_right(body, kBlanks);
        if (!body.ends_with(calls_->closers[i])) return false;
        body.remove_suffix(calls_->closers[i].size());
    }
    return true;
}

bool OutputParser::advance_between() {
    const std::string_view next = calls_->next;
    const std::string_view last = calls_->last;
    const std::string_view text = skip_blanks(kBlanks);
    if (text.starts_with(next)) {
        pending_.erase(0, num_searched_);
        enter(State::kCall);
    } else if (text.starts_with(last)) {
        pending_ = std::string(text.substr(last.size()));
        enter(State::kBehind);
    } else if (next.starts_with(text) || last.starts_with(text)) {
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
    return std::string(follows_call_ ? "" : calls_->begin).append(body).append(end);
}

bool OutputParser::add_call(std::string_view body, std::vector<ChatEvent>& events) const {
    if (!calls_->next.empty()) {
        const size_t begin = body.find(calls_->next);
        if (begin == std::string_view::npos) return false;
        body.remove_prefix(begin + calls_->next.size());
    }
    std::optional<ChatEvent> call = calls_->read(body, *types_);
    if (!call) return false;
    events.push_back(*std::move(call));
    return true;
}

}  // namespace afd::model
