// SPDX-License-Identifier: Apache-2.0
#include "model/chat/output_parser.h"

#include <algorithm>

#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kBlanksAtStart = " \t\n\r\v\f";
// Of a call, in which its arguments begin: otherwise one in which they never do would be looked
// through anew with each token.
constexpr size_t kHeadBytesMax = 1024;

// Where arguments that broke, and a call, end: at its end mark, or where more calls, or the text
// behind them, begin.
std::vector<std::string_view> ends_of(const CallSyntax& calls) {
    if (calls.next.empty()) return {calls.end, calls.begin};
    return {calls.end, calls.next, calls.last};
}

// In front of a call that follows another one.
std::string_view begin_of_next(const CallSyntax& calls) {
    return calls.next.empty() ? calls.begin : calls.next;
}

// A call that breaks off in a value, as if the value had come to its end. Blanks in front of the
// end of the call are not known to be of the value.
std::string with_closers(const CallSyntax& calls, std::string_view body) {
    for (size_t i = calls.closers.size(); i-- > 1;) {
        body = strip_right(body, kBlanks);
        if (body.ends_with(calls.closers[i])) body.remove_suffix(calls.closers[i].size());
    }
    std::string closed(strip_right(body, kBlanks));
    for (const std::string_view closer : calls.closers) closed += closer;
    return closed;
}

}  // namespace

OutputParser::OutputParser(const OutputSyntax& syntax)
    : types_(syntax.types ? syntax.types : std::make_shared<const ParameterTypes>()),
      calls_(call_syntax(syntax.tools)),
      must_call_(syntax.must_call),
      follows_thought_(syntax.follows_thought) {
    if (syntax.reasoning == ReasoningSyntax::kChannels) {
        channels_.emplace(syntax.tools == ToolSyntax::kHarmony);
    }
    if (syntax.reasoning == ReasoningSyntax::kFinalChannel) channels_.emplace(false, true);
    if (follows_thought_) state_ = State::kBehind;
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

std::vector<ChatEvent> OutputParser::finish(bool was_cut) {
    if (channels_) return channels_->finish(was_cut);
    std::vector<ChatEvent> events;
    // What was held does not become <think> any more.
    if (state_ == State::kStart && follows_thought_) advance_blanks(State::kContent);
    const bool is_reasoning = state_ == State::kReasoning;
    if (state_ == State::kCall) {
        finish_call(events);
    } else if (state_ == State::kArguments) {
        arguments_->finish(pending_, events);
    } else if (must_call_ && !is_reasoning) {
        // The beginning of a mark.
    } else if (state_ == State::kBehind || state_ == State::kBetween || has_call_) {
        // Behind a thought or a call line breaks are no text.
        if (!strip(pending_).empty()) add_text(ChatEvent::Kind::kContent, pending_, events);
    } else {
        add_text(is_reasoning ? ChatEvent::Kind::kReasoning : ChatEvent::Kind::kContent,
                 pending_,
                 events);
    }
    pending_.clear();
    num_searched_ = 0;
    return events;
}

// Of a call whose end has not come.
void OutputParser::finish_call(std::vector<ChatEvent>& events) {
    if (calls_->closes_itself && add_call(pending_, events)) return;
    if (!must_call_) {
        add_text(ChatEvent::Kind::kContent, unread_call(pending_, ""), events);
        return;
    }
    CallHead head = head_in(pending_);
    if (!head.name.empty()) {
        events.push_back({ChatEvent::Kind::kToolCall, "", std::move(head.name)});
    }
}

void OutputParser::enter(State state) {
    follows_call_ = state_ == State::kBetween;
    has_parameter_ = false;
    is_in_value_ = false;
    broken_end_ = std::string::npos;
    state_ = state;
    num_searched_ = 0;
    num_read_ = 0;
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
        case State::kArguments:
            return advance_arguments(events);
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
    enter(follows_thought_ ? State::kBehind : State::kContent);
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
        add_text(kind, pending_, events);
        pending_.clear();
        return false;
    }
    const auto [num_said, end] = sayable(pending_, std::span(&mark, 1), num_searched_);
    add_text(kind, std::string_view(pending_).substr(0, num_said), events);
    const bool has_end = !end.mark.empty();
    pending_.erase(0, has_end ? end.at + mark.size() : num_said);
    if (has_end) enter(next);
    return has_end;
}

bool OutputParser::advance_call(std::vector<ChatEvent>& events) {
    const bool may_begin = num_searched_ < kHeadBytesMax;
    const size_t end = find_call_end();
    if (may_begin && begin_arguments(std::min(end, pending_.size()), events)) return true;
    if (end == std::string::npos) return false;
    const std::string body = pending_.substr(0, end);
    const bool is_broken = end == broken_end_;
    if (!add_call(is_broken ? with_closers(*calls_, body) : body, events)) {
        add_text(ChatEvent::Kind::kContent, unread_call(body, calls_->end), events);
    }
    has_call_ = true;
    pending_.erase(0, end + calls_->end.size());
    enter(calls_->next.empty() ? State::kBehind : State::kBetween);
    return true;
}

bool OutputParser::begin_arguments(size_t size, std::vector<ChatEvent>& events) {
    CallHead head = head_in(std::string_view(pending_).substr(0, size));
    if (head.arguments == std::string_view::npos) return false;
    events.push_back({ChatEvent::Kind::kToolCall, "", std::move(head.name)});
    pending_.erase(0, head.arguments);
    arguments_.emplace(ends_of(*calls_), calls_->arguments_end);
    has_call_ = true;
    enter(State::kArguments);
    return true;
}

CallHead OutputParser::head_in(std::string_view text) const {
    if (calls_->read_head == nullptr) return {};
    text = text.substr(0, kHeadBytesMax);
    const size_t next = text.find(calls_->next);
    if (next == std::string_view::npos) return {};
    const size_t begin = next + calls_->next.size();
    CallHead head = calls_->read_head(text.substr(begin));
    if (head.arguments != std::string_view::npos) head.arguments += begin;
    return head;
}

bool OutputParser::advance_arguments(std::vector<ChatEvent>& events) {
    const std::string_view end = arguments_->advance(pending_, events);
    if (end.empty()) return false;
    if (end == calls_->end) pending_.erase(0, end.size());
    enter(calls_->next.empty() ? State::kBehind : State::kBetween);
    return true;
}

size_t OutputParser::find_call_end() {
    const std::string_view text = pending_;
    for (;;) {
        if (broken_end_ != std::string::npos) {
            const std::string_view next = begin_of_next(*calls_);
            const std::string_view behind = skip_blanks(kBlanks);
            if (behind.starts_with(next)) return broken_end_;
            if (next.starts_with(behind)) return std::string::npos;
            broken_end_ = std::string::npos;
        }
        const size_t end = text.find(calls_->end, num_searched_);
        if (end == std::string_view::npos) {
            num_searched_ = text.size() - num_held(text, calls_->end);
            return end;
        }
        read_marks(text.substr(num_read_, end - num_read_));
        if (closes_call(text.substr(0, end))) return end;
        num_searched_ = num_read_ = end + calls_->end.size();
        if (is_in_value_) broken_end_ = end;
    }
}

void OutputParser::read_marks(std::string_view part) {
    if (calls_->parameter.empty()) return;
    size_t last = 0;
    for (const std::string_view mark :
         {calls_->parameter, calls_->closers.front(), begin_of_next(*calls_)}) {
        const size_t at = part.rfind(mark);
        if (at == std::string_view::npos || at < last) continue;
        last = at;
        is_in_value_ = mark == calls_->parameter;
    }
    has_parameter_ = has_parameter_ || part.find(calls_->parameter) != std::string_view::npos;
}

bool OutputParser::closes_call(std::string_view body) const {
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
