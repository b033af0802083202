// SPDX-License-Identifier: Apache-2.0
#pragma once

// GenerationCall: what the body of a completion asks for: one Generate for each prompt, and how the
// answer is to look. Only types, and what has no place in a Generate, are judged here; ranges are
// the gateway's (SamplingSettings says them once for every front end).
//
// Fields, their defaults and what is refused: docs/serving.md.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/call/api_model.h"
#include "daemon/http/message/api_error.h"
#include "proto/client.pb.h"

namespace afd::daemon {

struct GenerationCall {
    // Prompts and choices of one call together.
    static constexpr uint32_t kChoicesMax = 256;
    // Of the prompts of a call that are said with them (echo), for all choices: an answer has some
    // 40 bytes for each. 16 prompts of 4096 tokens with 5 alternatives have 393,216.
    static constexpr uint64_t kEchoedLogprobsMax = 1 << 20;

    // The text of a prompt, as it is said before the output.
    struct Echo {
        std::string text = {};
        bool keeps_special = false;  // Special tokens of the prompt are in `text`.
        // When the text became ids, so many were added in front of it and behind it. They are no
        // part of `text`.
        size_t num_added_before = 0;
        size_t num_added_behind = 0;
    };

    bool is_chat = false;
    model::OutputSyntax output = {};  // Of a chat: how what it says is told apart.
    // What is asked of every prompt. Once, because it is as long as a client makes it.
    client::Generate common = {};
    // One for all choices of a prompt, which is token ids where the model has a tokenizer. Empty
    // once it is asked for (GenerationAnswer::take_wish()).
    std::vector<client::Generate> prompts = {};
    bool has_echo = false;
    std::vector<Echo> echoes = {};  // Of each prompt, with has_echo; else empty.
    uint32_t num_choices = 1;       // Of each prompt.
    bool is_stream = false;
    bool include_usage = false;     // Of a stream: in an event of its own at the end.
    bool continuous_usage = false;  // And in every event before.
    bool has_logprobs = false;
    uint32_t top_logprobs = 0;
    bool return_token_ids = false;
    bool keeps_special = false;  // Special tokens are part of the output's text. Not of a chat.
    uint32_t resumable_ms = 0;   // Of a stream of one choice; its events are numbered.
    // max_tokens 0 with echo, which scores the prompt: the gateway makes one token at least, and it
    // is not shown.
    bool hides_output = false;
    bool ends_behind_call = false;  // Of a chat: the first call is the last thing it says.
    // Fields that are not known, and what is known and nothing is held to. Empty once the header
    // about it is made.
    std::vector<std::string> ignored = {};

    // What is asked for the choices of a prompt.
    client::Generate wish(size_t prompt) const;
};

// Errors: 400 naming the param; 404: another model is asked for.
ApiResult<GenerationCall> read_completion(std::string_view body, const ApiModel& model);
// The same of a chat.
ApiResult<GenerationCall> read_chat(std::string_view body, const ApiModel& model);

}  // namespace afd::daemon
