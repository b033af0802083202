// SPDX-License-Identifier: Apache-2.0
#include "model/chat/channel_parser.h"

#include <algorithm>
#include <array>

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

MessageEnd find_end(std::string_view text) {
    MessageEnd first;
    for (const std::string_view mark : kEnds) {
        const size_t at = text.find(mark);
        if (at < first.at) first = {at, mark.size()};
    }
    for (const std::string_view mark : kStarts) {
        const size_t at = text.find(mark);
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
    if (!is_header) add(is_in_message_ ? kind_ : ChatEvent::Kind::kContent, pending_, events);
    pending_.clear();
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
    // Of what is too long the first byte is said, so that its mark begins no header again.
    const size_t num_said = may_be && !is_header ? 1 : 0;
    add(kind_, std::string_view(pending_).substr(0, num_said), events);
    pending_.erase(0, is_header ? end + kMessage.size() : num_said);
    is_in_message_ = true;
    return true;
}

bool ChannelParser::advance_message(std::vector<ChatEvent>& events) {
    const std::string_view text = pending_;
    const MessageEnd end = find_end(text);
    if (end.at == std::string_view::npos) {
        const size_t size = text.size() - num_uncertain(text);
        add(kind_, text.substr(0, size), events);
        pending_.erase(0, size);
        return false;
    }
    add(kind_, text.substr(0, end.at), events);
    pending_.erase(0, end.at + end.num_taken);
    is_in_message_ = false;
    return true;
}

}  // namespace afd::model
