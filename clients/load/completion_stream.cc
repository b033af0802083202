// SPDX-License-Identifier: Apache-2.0
#include "clients/load/completion_stream.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "clients/load/http_target.h"

namespace afd::client {
namespace {

using JsonValue = nlohmann::json;

constexpr std::string_view kEndMarker = "[DONE]";

Failure malformed(const std::string& what) {
    return {"malformed answer", {Code::kDataLoss, what}};
}

// nullptr: it is not there, or null.
const JsonValue* member(const JsonValue& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

// "", [] and {}: some servers send every field of a chunk.
bool is_empty(const JsonValue& value) {
    if (value.is_string()) return value.get_ref<const std::string&>().empty();
    return value.is_structured() && value.empty();
}

bool has_content(const JsonValue& object, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const JsonValue* value = member(object, name);
        if (value != nullptr && !is_empty(*value)) return true;
    }
    return false;
}

bool has_text(const JsonValue& choice) {
    if (has_content(choice, {"text"})) return true;
    const JsonValue* delta = member(choice, "delta");
    return delta != nullptr &&
           has_content(*delta,
                       {"content", "reasoning_content", "reasoning", "tool_calls", "refusal"});
}

}  // namespace

std::optional<Failure> CompletionStream::take(std::string_view data, uint64_t& num_tokens) {
    num_tokens = 0;
    if (is_over_) return std::nullopt;
    if (data == kEndMarker) {
        is_over_ = true;
        return std::nullopt;
    }
    const JsonValue event = JsonValue::parse(data, nullptr, false);
    if (!event.is_object()) {
        return malformed(fmt::format("an event is no JSON object in UTF-8: {}",
                                     error_text(std::string(data.substr(0, 80)))));
    }
    const JsonValue* kind = member(event, "object");
    if (member(event, "error") != nullptr || (kind != nullptr && *kind == "error")) {
        return Failure{"error in band", {Code::kUnavailable, error_text(std::string(data))}};
    }
    if (const JsonValue* usage = member(event, "usage")) {
        const JsonValue* output = member(*usage, "completion_tokens");
        const JsonValue* prompt = member(*usage, "prompt_tokens");
        if (output != nullptr && output->is_number_unsigned()) num_output_tokens_ = *output;
        if (prompt != nullptr && prompt->is_number_unsigned()) num_prompt_tokens_ = *prompt;
        if (const JsonValue* details = member(*usage, "prompt_tokens_details")) {
            const JsonValue* cached = member(*details, "cached_tokens");
            if (cached != nullptr && cached->is_number_unsigned()) num_cached_tokens_ = *cached;
        }
    }
    const JsonValue* choices = member(event, "choices");
    if (choices == nullptr || !choices->is_array()) {
        return malformed("an event has no choices and no error");
    }
    if (choices->empty()) return std::nullopt;
    const JsonValue& choice = choices->front();
    if (const JsonValue* reason = member(choice, "finish_reason"); reason && reason->is_string()) {
        finish_reason_ = *reason;
    }
    if (const JsonValue* ids = member(choice, "token_ids"); ids && ids->is_array()) {
        has_token_ids_ = true;
        num_tokens = ids->size();
    } else if (!has_token_ids_ && has_text(choice)) {
        num_tokens = 1;
    }
    num_counted_ += num_tokens;
    return std::nullopt;
}

std::optional<Failure> CompletionStream::finish(DoorEvent& event) const {
    if (finish_reason_.empty()) {
        return Failure{"no finish reason",
                       {Code::kDataLoss, "the answer ended and no event said why (finish_reason)"}};
    }
    if (has_token_ids_ && num_output_tokens_ && *num_output_tokens_ != num_counted_) {
        return malformed(fmt::format(
            "events with {} token ids, but a usage of {}", num_counted_, *num_output_tokens_));
    }
    event.kind = DoorEvent::Kind::kFinished;
    // A usage of 0 behind text is no count.
    const bool is_told = num_output_tokens_ && (*num_output_tokens_ > 0 || num_counted_ == 0);
    event.num_tokens = is_told ? *num_output_tokens_ : num_counted_;
    event.num_prompt_tokens = num_prompt_tokens_;
    event.num_cached_tokens = num_cached_tokens_;
    event.is_count_guessed = !has_token_ids_ && !is_told;
    event.reason = finish_reason_ == "length"  ? DoorEvent::Reason::kLength
                   : finish_reason_ == "abort" ? DoorEvent::Reason::kCancelled
                                               : DoorEvent::Reason::kStop;
    return std::nullopt;
}

}  // namespace afd::client
