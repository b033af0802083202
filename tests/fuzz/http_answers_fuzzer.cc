// SPDX-License-Identifier: Apache-2.0
//
// What a server of the OpenAI API answers afd-load. Input: how the bytes are cut, how many brackets
// the bytes 1 and 2 stand for, and the bytes of the connection. They go through the reader of HTTP,
// and what is in them through that of events, the stream of a completion and the text of an error.
// Oracle: events are the same however the bytes are cut; what is shown is one line of few bytes.

#include <algorithm>
#include <string>
#include <vector>

#include "clients/http/event_stream_reader.h"
#include "clients/http/http_response_reader.h"
#include "clients/load/completion_stream.h"
#include "clients/load/http_target.h"
#include "proto/check.h"
#include "tests/fuzz/fuzz_input.h"

namespace afd::client {
namespace {

// More levels than a call for each has stack for, in inputs that stay small.
std::string expand(std::string_view text, size_t num_levels) {
    constexpr int kExpandedMax = 2;
    std::string out;
    int num_expanded = 0;
    for (const char c : text) {
        const bool is_nested = (c == 1 || c == 2) && ++num_expanded <= kExpandedMax;
        out.append(is_nested ? num_levels : 1, is_nested ? (c == 1 ? '[' : ']') : c);
    }
    return out;
}

// All bodies of the connection, as far as it can be read.
std::string bodies_of(const std::string& bytes, size_t size) {
    HttpResponseReader reader;
    std::string bodies;
    for (size_t i = 0; i < bytes.size(); i += size) {
        if (!reader.append(std::string_view(bytes).substr(i, size)).ok()) return bodies;
        while (reader.has_head()) {
            bodies += reader.take_body();
            if (!reader.is_done()) break;
            reader.next();
            if (!reader.append("").ok()) return bodies;
        }
    }
    static_cast<void>(reader.end());
    return bodies;
}

std::vector<std::string> events_of(const std::string& bytes, size_t size) {
    EventStreamReader reader;
    std::vector<std::string> events;
    for (size_t i = 0; i < bytes.size(); i += size) {
        if (!reader.append(std::string_view(bytes).substr(i, size), events).ok()) break;
    }
    return events;
}

void must_be_shown(const std::string& text) {
    AFD_ASSERT(text.size() <= 303, "%zu bytes", text.size());
    const auto is_control = [](char c) { return c >= 0 && c < ' '; };
    AFD_ASSERT(std::ranges::none_of(text, is_control), "control bytes in %s", text.c_str());
}

void follow(const std::vector<std::string>& events) {
    CompletionStream stream;
    for (const std::string& data : events) {
        uint64_t num_tokens = 0;
        if (stream.take(data, num_tokens)) return;
    }
    DoorEvent event;
    if (stream.is_over()) static_cast<void>(stream.finish(event));
}

void exercise(const std::string& stream, size_t cut) {
    const std::vector<std::string> events = events_of(stream, cut);
    AFD_ASSERT(events == events_of(stream, stream.size() + 1), "other events in other parts");
    follow(events);
    for (const std::string& event : events) must_be_shown(error_text(event));
}

}  // namespace
}  // namespace afd::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::FuzzInput input(data, size);
    const size_t cut = input.take<uint8_t>() + size_t{1};
    const size_t num_levels = input.take<uint16_t>() * size_t{2};
    const std::string bytes = afd::client::expand(input.text(), num_levels);
    const std::string body = afd::client::bodies_of(bytes, cut);
    afd::client::must_be_shown(afd::client::error_text(body));
    // What is no HTTP may still have events.
    for (const std::string& stream : {body, bytes}) afd::client::exercise(stream, cut);
    return 0;
}
