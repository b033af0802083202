// SPDX-License-Identifier: Apache-2.0
#include "model/chat/channel_parser.h"

#include <algorithm>
#include <array>

#include "model/chat/call_syntax.h"
#include "model/chat/chat_text.h"

namespace afd::model {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kAnalysis = "analysis";
// What is longer is no header: otherwise a model that never ends one would be looked through anew
// with each token.
constexpr size_t kHeaderBytesMax = 1024;
// Of a message, and in front of the next one's header.
constexpr std::array<std::string_view, 3> kEnds = {"<|end|>", "<|call|>", "<|return|>"};
// Of the next header, where a model leaves out the end.
constexpr std::array<std::string_view, 2> kStarts = {"<|start|>", kChannel};

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

void add(ChatEvent::Kind kind, std::string_view text, std::vector<ChatEvent>& events) {
    if (text.empty()) return;
    if (!events.empty() && events.back().kind == kind) {
        events.back().text += text;
    } else {
        events.push_back({kind, std::string(text)});
    }
}

// Where a message ends: the first mark, and how much of it is the message's.
struct MessageEnd {
    size_t at = std::string_view::npos;
    size_t num_taken = 0;
};

MessageEnd find_end(std::string_view text, size_t from) {
    MessageEnd first;
    for (const std::string_view mark : kEnds) {
        const size_t at = text.find(mark, from);
        if (at < first.at) first = {at, mark.size()};
    }
    for (const std::string_view mark : kStarts) {
        const size_t at = text.find(mark, from);
        if (at < first.at) first = {at, 0};
    }
    return first;
}

size_t num_uncertain(std::string_view text) {
    size_t most = 0;
    for (const std::string_view mark : kEnds) most = std::max(most, num_held(text, mark));
    for (const std::string_view mark : kStarts) most = std::max(most, num_held(text, mark));
    return most;
}

}  // namespace

std::vector<ChatEvent> ChannelParser::append(std::string_view text) {
    pending_ += text;
    std::vector<ChatEvent> events;
    while (advance(events)) {
    }
    return events;
}

std::vector<ChatEvent> ChannelParser::finish() {
    std::vector<ChatEvent> events;
    const bool is_header = !is_in_message_ && (strip_left(pending_).starts_with('<') ||
                                               pending_.find("<|") != std::string::npos);
    if (is_in_message_ && kind_ == ChatEvent::Kind::kToolCall) {
        add_call(pending_, "", events);
    } else if (!is_header) {
        add(is_in_message_ ? kind_ : ChatEvent::Kind::kContent, pending_, events);
    }
    pending_.clear();
    num_searched_ = 0;
    return events;
}

bool ChannelParser::advance(std::vector<ChatEvent>& events) {
    return is_in_message_ ? advance_message(events) : advance_header(events);
}

bool ChannelParser::advance_header(std::vector<ChatEvent>& events) {
    const size_t end = pending_.find(kMessage);
    const bool may_be = may_be_header(pending_);
    const bool is_header = may_be && end <= kHeaderBytesMax;
    if (may_be && !is_header && pending_.size() < kHeaderBytesMax + kMessage.size()) return false;
    const std::string_view header = std::string_view(pending_).substr(0, is_header ? end : 0);
    kind_ = is_thought(header) ? ChatEvent::Kind::kReasoning : ChatEvent::Kind::kContent;
    function_ = reads_calls_ ? function_in(header) : "";
    if (!function_.empty()) {
        kind_ = ChatEvent::Kind::kToolCall;
        header_ = std::string(header).append(kMessage);
    }
    // Of what is too long the first byte is said, so that its mark begins no header again.
    const size_t num_said = may_be && !is_header ? 1 : 0;
    add(kind_, std::string_view(pending_).substr(0, num_said), events);
    pending_.erase(0, is_header ? end + kMessage.size() : num_said);
    is_in_message_ = true;
    return true;
}

bool ChannelParser::advance_message(std::vector<ChatEvent>& events) {
    const std::string_view text = pending_;
    const bool is_call = kind_ == ChatEvent::Kind::kToolCall;
    const MessageEnd end = find_end(text, num_searched_);
    if (end.at == std::string_view::npos) {
        const size_t size = text.size() - num_uncertain(text);
        if (is_call) {
            num_searched_ = size;
            return false;
        }
        add(kind_, text.substr(0, size), events);
        pending_.erase(0, size);
        return false;
    }
    const std::string_view body = text.substr(0, end.at);
    if (is_call) {
        add_call(body, text.substr(end.at, end.num_taken), events);
    } else {
        add(kind_, body, events);
    }
    pending_.erase(0, end.at + end.num_taken);
    num_searched_ = 0;
    is_in_message_ = false;
    return true;
}

void ChannelParser::add_call(std::string_view arguments,
                             std::string_view end,
                             std::vector<ChatEvent>& events) const {
    std::optional<ChatEvent> call = called(function_, arguments);
    if (call) {
        events.push_back(*std::move(call));
    } else {
        add(ChatEvent::Kind::kContent, header_ + std::string(arguments).append(end), events);
    }
}

}  // namespace afd::model
