// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/request/prompt.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "model/attention/kv_cache.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

// Before the text is looked at in any other way: encoding costs some hundred times as much.
Result<> check_bytes(const std::string& text, const ServedModel& model, const TokenLimit& limit) {
    const uint64_t tokens_min = model.tokenizer->tokens_min(text);
    if (tokens_min <= limit.tokens) return {};
    return invalid_argument(
        "the prompt has {} bytes, which are at least {} tokens: at most {} fit, {}; send a shorter "
        "prompt",
        with(text.size(), tokens_min, limit.tokens, limit.what));
}

Result<> check_total(uint64_t num_prompt_tokens, uint32_t max_tokens, const TokenLimit& limit) {
    // In 64 bits: max_tokens is the client's, and the sum must not wrap.
    if (num_prompt_tokens + std::max<uint64_t>(1, max_tokens) <= limit.tokens) return {};
    if (max_tokens == 0) {
        return invalid_argument(
            "the prompt has {} tokens: at most {} fit, {}, with the one that is generated; send a "
            "shorter prompt",
            with(num_prompt_tokens, limit.tokens, limit.what));
    }
    return invalid_argument(
        "the prompt has {} tokens and max_tokens is {}: together at most {} fit, {}",
        with(num_prompt_tokens, max_tokens, limit.tokens, limit.what));
}

}  // namespace

TokenLimit::TokenLimit(uint32_t context_length, uint32_t window, uint64_t kv_tokens) {
    // With a window the cache bounds what a sequence holds at a time, and not its length.
    const bool is_bounded =
        model::held_blocks(context_length, window) > kv_tokens / model::kKvBlockTokens;
    tokens = is_bounded ? std::min<uint64_t>(context_length, kv_tokens) : context_length;
    what = tokens == context_length ? "the context length of the model"
                                    : "the KV cache of an attention worker (kv_tokens)";
}

uint64_t whole_kv_tokens(uint64_t kv_tokens) {
    return model::BlockAllocator::blocks_for(kv_tokens) * model::kKvBlockTokens;
}

std::string shortened_context(uint32_t context_length, const TokenLimit& limit) {
    if (limit.tokens >= context_length) return "";
    return fmt::format(
        "a request may have {} tokens, prompt and answer together, of the model's context of {}: "
        "kv_tokens, the KV cache of each attention worker",
        limit.tokens,
        context_length);
}

Result<std::vector<uint32_t>> tokenize(const std::string& text,
                                       bool as_prompt,
                                       const ServedModel& model,
                                       const TokenLimit& limit) {
    if (model.tokenizer == nullptr) {
        return invalid_argument("this model has no tokenizer: send the prompt as token_ids");
    }
    AFD_TRY(check_bytes(text, model, limit));
    Result<std::vector<uint32_t>> encoded = model.tokenizer->encode(text);
    if (!encoded.ok() && encoded.error().code == Code::kResourceExhausted) {
        // The limit is the tokenizer's and not the instance's: another try would end the same.
        return invalid_argument("the {} cannot be tokenized: {}",
                                with(as_prompt ? "prompt" : "text", encoded.error().message));
    }
    AFD_ASSIGN(std::vector<uint32_t> ids, std::move(encoded));
    if (!as_prompt) return ids;
    // Text gets the tokens that the model was trained to begin with. Ids are taken as they are.
    const auto start = model.tokenizer->prompt_start();
    const auto end = model.tokenizer->prompt_end();
    ids.insert(ids.begin(), start.begin(), start.end());
    ids.insert(ids.end(), end.begin(), end.end());
    return ids;
}

Result<> check_ids(const google::protobuf::RepeatedField<uint32_t>& ids,
                   const char* name,
                   uint32_t vocab_size) {
    for (int i = 0; i < ids.size(); ++i) {
        if (ids[i] < vocab_size) continue;
        return invalid_argument("{}[{}] = {}: must be below the vocabulary size {}",
                                with(name, i, ids[i], vocab_size));
    }
    return {};
}

Result<std::vector<uint32_t>> prompt_of(const client::Generate& generate,
                                        const ServedModel& model,
                                        const TokenLimit& limit) {
    std::vector<uint32_t> ids;
    if (generate.has_token_ids()) {
        const auto& given = generate.token_ids().ids();
        AFD_TRY(check_total(static_cast<uint64_t>(given.size()), generate.max_tokens(), limit));
        ids.assign(given.begin(), given.end());
    } else if (generate.has_text()) {
        AFD_ASSIGN(ids, tokenize(generate.text(), true, model, limit));
        AFD_TRY(check_total(ids.size(), generate.max_tokens(), limit));
    } else {
        return invalid_argument("the request has no prompt: set text or token_ids");
    }
    if (ids.empty()) {
        return invalid_argument("the prompt is empty: it must have at least one token");
    }
    AFD_TRY(check_ids({ids.begin(), ids.end()}, "token_ids", model.vocab_size));
    return ids;
}

}  // namespace afd::daemon
