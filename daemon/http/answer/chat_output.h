// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChatOutput: what a model says in a chat, as the API has it: content, reasoning_content and
// tool_calls, as deltas of a stream or as one message. The texts are told apart by the model's
// syntax (model/chat/output_parser.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/output_parser.h"

namespace afd::daemon {

class ChatOutput {
  public:
    // `id`: what the ids of tool calls begin with; six digits follow. `is_stream`: deltas, else a
    // message. `ends_behind_call`: what comes behind the first call is not said.
    ChatOutput(const model::OutputSyntax& syntax,
               std::string id,
               bool is_stream,
               bool ends_behind_call = false)
        : parser_(syntax),
          id_(std::move(id)),
          is_stream_(is_stream),
          ends_behind_call_(ends_behind_call) {}

    // More of the text: of a stream its deltas, JSON objects, often none; else none.
    std::vector<std::string> append(std::string_view text) { return take(parser_.append(text)); }
    // The rest, at the end.
    std::vector<std::string> finish() { return take(parser_.finish()); }

    bool has_calls() const { return num_calls_ > 0; }
    // Whether nothing is said any more, whatever text comes.
    bool is_over() const { return ends_behind_call_ && has_calls(); }
    // The whole, without a stream: {"role":"assistant",...}.
    std::string message() const;

  private:
    std::vector<std::string> take(const std::vector<model::ChatEvent>& events);
    std::string delta_of(const model::ChatEvent& event);
    void keep(const model::ChatEvent& event);
    // One call; a delta says which by its index.
    std::string call_of(const model::ChatEvent& event, bool has_index);

    model::OutputParser parser_;
    const std::string id_;
    const bool is_stream_;
    const bool ends_behind_call_;
    uint64_t num_calls_ = 0;
    std::string content_;
    std::string reasoning_;
    std::string calls_;  // JSON, with commas between.
};

}  // namespace afd::daemon
