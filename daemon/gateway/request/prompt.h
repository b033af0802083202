// SPDX-License-Identifier: Apache-2.0
#pragma once

// The token ids of a prompt, and whether they fit. Texts and ids come from clients: what is too
// long is refused before it costs anything.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/gateway/request/served_model.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// How many tokens a request may have, prompt and output together.
struct TokenLimit {
    // `kv_tokens`: what one attention worker holds.
    TokenLimit(const ServedModel& model, uint64_t kv_tokens)
        : TokenLimit(model.context_length, model.window, kv_tokens) {}
    // `window`: ServedModel::window.
    TokenLimit(uint32_t context_length, uint32_t window, uint64_t kv_tokens);

    uint64_t tokens;
    const char* what;  // Whose limit it is, for messages.
};

// What an attention worker holds that is given `kv_tokens`: whole blocks.
uint64_t whole_kv_tokens(uint64_t kv_tokens);

// What keeps requests from the whole context of the model, a line for who starts or plans an
// instance; empty: nothing does.
std::string shortened_context(uint32_t context_length, const TokenLimit& limit);

// The ids of a text; with the tokens that the model's prompts begin and end with, if `as_prompt`.
// Errors: kInvalidArgument: there is no tokenizer, the text is too long, not UTF-8, or
// beyond what the tokenizer can split.
Result<std::vector<uint32_t>> tokenize(const std::string& text,
                                       bool as_prompt,
                                       const ServedModel& model,
                                       const TokenLimit& limit);

// Errors: kInvalidArgument naming the place, its value and the vocabulary size.
Result<> check_ids(const google::protobuf::RepeatedField<uint32_t>& ids,
                   const char* name,
                   uint32_t vocab_size);

// The ids of the request's prompt, at least one, with room for its max_tokens.
// Errors: kInvalidArgument naming the field, its value and what is allowed.
Result<std::vector<uint32_t>> prompt_of(const client::Generate& generate,
                                        const ServedModel& model,
                                        const TokenLimit& limit);

}  // namespace afd::daemon
