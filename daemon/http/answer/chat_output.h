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
    // The rest, at the end. `was_cut`: the model had not ended it.
    std::vector<std::string> finish(bool was_cut = false) { return take(parser_.finish(was_cut)); }

    // Whether it has called, and the last call came to its end.
    bool has_called() const { return num_calls_ > 0 && !is_in_call_; }
    // Whether the end of a call is the last thing it said.
    bool ends_with_call() const { return has_called() && !has_said_behind_; }
    // Whether nothing is said any more, whatever text comes.
    bool is_over() const { return ends_behind_call_ && has_called(); }
    // The whole, without a stream: {"role":"assistant",...}.
    std::string message() const;

  private:
    std::vector<std::string> take(const std::vector<model::ChatEvent>& events);
    std::string delta_of(const model::ChatEvent& event) const;
    void keep(const model::ChatEvent& event);
    // A call as a member of tool_calls, from its id on, without the closing brace.
    std::string call_text(uint64_t index, const model::ChatEvent& call) const;

    model::OutputParser parser_;
    const std::string id_;
    const bool is_stream_;
    const bool ends_behind_call_;
    uint64_t num_calls_ = 0;
    bool is_in_call_ = false;       // More of its arguments may come.
    bool has_said_behind_ = false;  // Something else than the last call.
    std::string content_;
    std::string reasoning_;
    std::vector<model::ChatEvent> calls_;  // Not of a stream: each with all of its arguments.
};

}  // namespace afd::daemon
