// SPDX-License-Identifier: Apache-2.0
#include "model/chat/channel_parser.h"

#include <algorithm>
#include <array>

#include "model/chat/call/call_syntax.h"
#include "model/chat/message/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kAnalysis = "analysis";
// What is longer is no header: otherwise a model that never ends one would be looked through anew
// with each token.
constexpr size_t kHeaderBytesMax = 1024;
constexpr std::string_view kMessageStart = "<|start|>";
// What ends a message: a mark of its own, or the start of the next header, where a model leaves out
// the end.
constexpr std::array<std::string_view, 5> kEnds = {
    "<|end|>", "<|call|>", "<|return|>", kMessageStart, kChannel};

// A header begins with a mark, or with whom the message is for. Anything else is an answer of a
// model that does not keep to the form.
bool may_be_header(std::string_view text) {
    constexpr std::array<std::string_view, 2> kBeginnings = {"<|", "to="};
    text = strip_left(text);
    return std::ranges::any_of(kBeginnings, [text](std::string_view beginning) {
        return text.starts_with(beginning) || beginning.starts_with(text);
    });
}

bool is_thought(std::string_view header) {
    const size_t channel = header.rfind(kChannel);
    return channel != std::string_view::npos &&
           strip_left(header.substr(channel + kChannel.size())).starts_with(kAnalysis);
}

// The function that a message with this header calls; empty: it calls none.
std::string_view function_in(std::string_view header) {
    constexpr std::string_view kTo = "to=functions.";
    const size_t at = header.find(kTo);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = header.substr(at + kTo.size());
    return rest.substr(0, rest.find_first_of(" <\t\n"));
}

// What of the end of a message is its own.
std::string_view own_part(std::string_view end) {
    return end == kMessageStart || end == kChannel ? std::string_view() : end;
}

}  // namespace

std::vector<ChatEvent> ChannelParser::append(std::string_view text) {
    pending_ += text;
    std::vector<ChatEvent> events;
    while (advance(events)) {
    }
    return events;
}

std::vector<ChatEvent> ChannelParser::finish(bool was_cut) {
    std::vector<ChatEvent> events;
    const bool has_header =
        strip_left(pending_).starts_with('<') || pending_.find("<|") != std::string::npos;
    switch (state_) {
        case State::kHeader:
            if (!has_header) say(ChatEvent::Kind::kContent, pending_, events);
            break;
        case State::kText:
            say(kind_, pending_, events);
            break;
        case State::kCall:
            if (!was_cut || !pending_.empty()) add_call(pending_, "", events);
            break;
        case State::kArguments:
            arguments_->finish(pending_, events);
            say_behind_call(std::span(events));
            break;
    }
    pending_.clear();
    num_searched_ = 0;
    return events;
}

bool ChannelParser::advance(std::vector<ChatEvent>& events) {
    switch (state_) {
        case State::kHeader:
            return advance_header(events);
        case State::kText:
            return advance_text(events);
        case State::kCall:
            return advance_call(events);
        case State::kArguments:
            return advance_arguments(events);
    }
    return false;
}

bool ChannelParser::advance_header(std::vector<ChatEvent>& events) {
    const size_t end = pending_.find(kMessage);
    const bool may_be = may_be_header(pending_);
    const bool is_header = may_be && end <= kHeaderBytesMax;
    if (may_be && !is_header && pending_.size() < kHeaderBytesMax + kMessage.size()) return false;
    const std::string_view header = std::string_view(pending_).substr(0, is_header ? end : 0);
    kind_ = is_thought(header) ? ChatEvent::Kind::kReasoning : ChatEvent::Kind::kContent;
    function_ = reads_calls_ ? function_in(header) : "";
    state_ = function_.empty() ? State::kText : State::kCall;
    header_ = std::string(header).append(kMessage);
    // Of what is too long the first byte is said, so that its mark begins no header again.
    const size_t num_said = may_be && !is_header ? 1 : 0;
    say(kind_, std::string_view(pending_).substr(0, num_said), events);
    pending_.erase(0, is_header ? end + kMessage.size() : num_said);
    return true;
}

FoundMark ChannelParser::find_end() {
    if (says_one_ && kind_ == ChatEvent::Kind::kContent) {
        num_searched_ = pending_.size();
        return {};
    }
    const FoundMark end = first_mark(pending_, kEnds, num_searched_);
    if (end.mark.empty()) num_searched_ = pending_.size() - num_held(pending_, kEnds);
    return end;
}

void ChannelParser::end_message(const FoundMark& end) {
    pending_.erase(0, end.at + own_part(end.mark).size());
    num_searched_ = 0;
    is_silent_ = true;
    state_ = State::kHeader;
}

void ChannelParser::say(ChatEvent::Kind kind,
                        std::string_view text,
                        std::vector<ChatEvent>& events) {
    if (text.empty()) return;
    bool& has_some = kind == ChatEvent::Kind::kReasoning ? has_thought_ : has_said_;
    if (is_silent_ && has_some) add_text(kind, "\n", events);
    is_silent_ = false;
    has_some = true;
    add_text(kind, text, events);
}

void ChannelParser::say_behind_call(std::span<ChatEvent> events) {
    for (ChatEvent& event : events) {
        if (event.kind != ChatEvent::Kind::kContent) continue;
        if (is_silent_ && has_said_) event.text.insert(0, "\n");
        is_silent_ = false;
        has_said_ = true;
    }
}

bool ChannelParser::advance_text(std::vector<ChatEvent>& events) {
    const FoundMark end = find_end();
    const bool has_end = !end.mark.empty();
    const size_t size = has_end ? end.at : num_searched_;
    say(kind_, std::string_view(pending_).substr(0, size), events);
    if (has_end) {
        end_message(end);
    } else {
        pending_.erase(0, size);
        num_searched_ = 0;
    }
    return has_end;
}

bool ChannelParser::advance_call(std::vector<ChatEvent>& events) {
    // Blanks in front are kept with the header.
    const size_t num_blanks = pending_.size() - strip_left(pending_).size();
    header_.append(pending_, 0, num_blanks);
    pending_.erase(0, num_blanks);
    num_searched_ -= std::min(num_searched_, num_blanks);
    if (pending_.starts_with('{')) {
        events.push_back({ChatEvent::Kind::kToolCall, "", function_});
        arguments_.emplace(kEnds);
        num_searched_ = 0;
        state_ = State::kArguments;
        return true;
    }
    const FoundMark end = find_end();
    if (end.mark.empty()) return false;
    add_call(std::string_view(pending_).substr(0, end.at), own_part(end.mark), events);
    end_message(end);
    return true;
}

bool ChannelParser::advance_arguments(std::vector<ChatEvent>& events) {
    const size_t num_before = events.size();
    const std::string_view end = arguments_->advance(pending_, events);
    say_behind_call(std::span(events).subspan(num_before));
    if (end.empty()) return false;
    end_message({0, end});
    return true;
}

void ChannelParser::add_call(std::string_view arguments,
                             std::string_view end,
                             std::vector<ChatEvent>& events) {
    std::optional<ChatEvent> call = called(function_, arguments);
    if (call) {
        events.push_back(*std::move(call));
    } else {
        say(ChatEvent::Kind::kContent, header_ + std::string(arguments).append(end), events);
    }
}

}  // namespace afd::model
