// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogprobsText: the `logprobs` of a choice, for an answer or for one event of a stream, in the form
// of completions or of chats. Collected as JSON, token by token.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/http/call/api_model.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class LogprobsText {
  public:
    // Another token at the same place, and its log probability.
    struct Alternative {
        uint32_t token = 0;
        float logprob = 0;
    };
    static std::vector<Alternative> alternatives_of(const client::TopLogprobs& top);

    // `model` outlives the object.
    LogprobsText(const ApiModel& model, bool is_chat) : model_(model), is_chat_(is_chat) {}

    // `logprob`: nothing for the first token of a prompt. `offset`: characters of the choice's text
    // before the token. Beside `alternatives`, if there are any, a completion has the token itself,
    // too, so it may have one more; a chat has it before them anyway.
    void add(uint32_t token,
             std::optional<float> logprob,
             uint64_t offset,
             std::span<const Alternative> alternatives = {});

    bool empty() const { return num_tokens_ == 0; }
    void clear();
    // As clear(); it was long, and nothing comes any more.
    void give_memory_back();
    // {"tokens":[...],...} or {"content":[...]}.
    void append(std::string& out) const;

  private:
    void add_to_chat(uint32_t token,
                     std::optional<float> logprob,
                     std::span<const Alternative> alternatives);
    void append_to_top(const Alternative& one);
    std::string text_of(uint32_t token) const;

    const ApiModel& model_;
    const bool is_chat_;
    uint64_t num_tokens_ = 0;
    std::string tokens_;  // Of chats: the whole content.
    std::string logprobs_;
    std::string top_;
    std::string offsets_;
};

}  // namespace afd::daemon
