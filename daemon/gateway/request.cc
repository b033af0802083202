// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/request.h"

#include <fmt/core.h>

#include <algorithm>

#include "model/sampling/sampler.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

// How many tokens a request may have, prompt and output together.
struct TokenLimit {
    TokenLimit(const ServedModel& model, uint64_t kv_tokens)
        : tokens(std::min<uint64_t>(model.context_length, kv_tokens)),
          what(model.context_length <= kv_tokens
                   ? "the context length of the model"
                   : "the KV cache of an attention worker (kv_tokens)") {}

    uint64_t tokens;
    const char* what;
};

// Before the text is looked at in any other way: encoding costs some hundred times as much.
Result<> check_bytes(const std::string& text, const ServedModel& model, const TokenLimit& limit) {
    const uint64_t tokens_min = model.tokenizer->tokens_min(text);
    if (tokens_min <= limit.tokens) return {};
    return invalid_argument(
        "the prompt has {} bytes, which are at least {} tokens: at most {} fit, {}; send a shorter "
        "prompt",
        with(text.size(), tokens_min, limit.tokens, limit.what));
}

Result<std::vector<uint32_t>> tokenize(const std::string& text,
                                       ServedModel& model,
                                       const TokenLimit& limit) {
    if (model.tokenizer == nullptr) {
        return invalid_argument("this model has no tokenizer: send the prompt as token_ids");
    }
    AFD_TRY(check_bytes(text, model, limit));
    AFD_ASSIGN(std::vector<uint32_t> ids, model.tokenizer->encode(text));
    // Text gets the tokens that the model was trained to begin with. Ids are taken as they are.
    const auto start = model.tokenizer->prompt_start();
    const auto end = model.tokenizer->prompt_end();
    ids.insert(ids.begin(), start.begin(), start.end());
    ids.insert(ids.end(), end.begin(), end.end());
    return ids;
}

Result<> check_total(uint64_t num_prompt_tokens, uint32_t max_tokens, const TokenLimit& limit) {
    // In 64 bits: max_tokens is the client's, and the sum must not wrap.
    if (num_prompt_tokens + std::max<uint64_t>(1, max_tokens) <= limit.tokens) return {};
    return invalid_argument(
        "the prompt has {} tokens and max_tokens is {}: together at most {} fit, {}",
        with(num_prompt_tokens, max_tokens, limit.tokens, limit.what));
}

Result<std::vector<uint32_t>> prompt_of(const client::Generate& generate,
                                        ServedModel& model,
                                        const TokenLimit& limit) {
    std::vector<uint32_t> ids;
    if (generate.has_token_ids()) {
        const auto& given = generate.token_ids().ids();
        AFD_TRY(check_total(static_cast<uint64_t>(given.size()), generate.max_tokens(), limit));
        ids.assign(given.begin(), given.end());
    } else if (generate.has_text()) {
        AFD_ASSIGN(ids, tokenize(generate.text(), model, limit));
        AFD_TRY(check_total(ids.size(), generate.max_tokens(), limit));
    } else {
        return invalid_argument("the request has no prompt: set text or token_ids");
    }
    if (ids.empty()) {
        return invalid_argument("the prompt is empty: it must have at least one token");
    }
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < model.vocab_size) continue;
        return invalid_argument("token_ids[{}] = {}: must be below the vocabulary size {}",
                                with(i, ids[i], model.vocab_size));
    }
    return ids;
}

}  // namespace

Request::Request(const model::Tokenizer* tokenizer) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
}

Result<std::unique_ptr<Request>> Request::create(const client::Generate& generate,
                                                 ServedModel& model,
                                                 uint64_t kv_tokens,
                                                 uint64_t drawn_seed) {
    AFD_TRY(model::validate(generate.sampling()));
    const TokenLimit limit(model, kv_tokens);
    AFD_ASSIGN(std::vector<uint32_t> prompt, prompt_of(generate, model, limit));
    // It fits, so the sum does not wrap.
    const uint64_t total =
        generate.max_tokens() == 0 ? limit.tokens : prompt.size() + generate.max_tokens();
    std::unique_ptr<Request> request(new Request(model.tokenizer));
    request->num_prompt_tokens_ = static_cast<uint32_t>(prompt.size());
    request->tokens_ = std::move(prompt);
    request->max_total_tokens_ = static_cast<uint32_t>(total);
    request->vocab_size_ = model.vocab_size;
    request->sampling_ = generate.sampling();
    if (!request->sampling_.has_seed()) request->sampling_.set_seed(drawn_seed);
    if (!generate.ignore_eos()) request->stop_ids_ = model.stop_ids;
    request->return_token_ids_ = generate.return_token_ids();
    request->return_logprobs_ = generate.return_logprobs();
    request->prompt_logprobs_ = generate.prompt_logprobs();
    return request;
}

client::Accepted Request::accepted() const {
    client::Accepted accepted;
    accepted.set_seed(sampling_.seed());
    accepted.set_num_prompt_tokens(num_prompt_tokens_);
    if (return_token_ids_) {
        for (uint32_t i = 0; i < num_prompt_tokens_; ++i) accepted.add_prompt_ids(tokens_[i]);
    }
    return accepted;
}

control::Admit Request::admit(uint64_t sequence_id) const {
    control::Admit admit;
    admit.set_sequence_id(sequence_id);
    // With what was generated already: a replay is a prompt that is that much longer.
    admit.mutable_tokens()->Assign(tokens_.begin(), tokens_.end());
    admit.set_num_prompt_tokens(num_prompt_tokens_);
    admit.set_max_total_tokens(max_total_tokens_);
    *admit.mutable_sampling() = sampling_;
    admit.set_prompt_logprobs(prompt_logprobs_ && next_prompt_logprob_ < num_prompt_tokens_);
    for (const uint32_t id : stop_ids_) admit.add_stop_ids(id);
    return admit;
}

Result<std::optional<client::Chunk>> Request::on_token(const control::TokenEvent& event) {
    // The worker's bytes are not believed either: an id out of range would be decoded as another
    // token's text.
    if (event.token() >= vocab_size_ || is_complete()) {
        return Error{
            Code::kInternal,
            fmt::format("the attention worker sent token {} as number {} of {} (vocabulary "
                        "size {})",
                        event.token(),
                        num_output_tokens() + 1,
                        max_total_tokens_ - num_prompt_tokens_,
                        vocab_size_)};
    }
    tokens_.push_back(event.token());
    client::Chunk chunk;
    chunk.set_num_tokens(1);
    if (decoder_) chunk.set_text(decoder_->append(event.token()));
    if (return_token_ids_) chunk.add_token_ids(event.token());
    if (return_logprobs_) chunk.add_logprobs(event.logprob());
    return std::optional(std::move(chunk));
}

std::optional<client::Chunk> Request::on_prompt_logprobs(
    const control::PromptLogprobsEvent& event) {
    client::Chunk chunk;
    for (int i = 0; i < event.values_size(); ++i) {
        const uint64_t position = uint64_t{event.first_position()} + static_cast<uint64_t>(i);
        // A replay reports them anew from the start; each goes to the client once.
        if (position != next_prompt_logprob_ || position >= num_prompt_tokens_) continue;
        chunk.add_prompt_logprobs(event.values(i));
        ++next_prompt_logprob_;
    }
    if (!prompt_logprobs_ || chunk.prompt_logprobs().empty()) return std::nullopt;
    return chunk;
}

std::optional<client::Chunk> Request::on_end() {
    if (!decoder_) return std::nullopt;
    std::string rest = decoder_->finish();
    if (rest.empty()) return std::nullopt;
    client::Chunk chunk;
    chunk.set_text(std::move(rest));
    return chunk;
}

bool Request::ends_text(uint32_t token) const {
    return std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
}

bool Request::is_complete() const {
    if (num_output_tokens() == 0) return false;
    return tokens_.size() >= max_total_tokens_ || ends_text(tokens_.back());
}

client::FinishReason Request::finish_reason() const {
    return num_output_tokens() > 0 && ends_text(tokens_.back()) ? client::STOP : client::LENGTH;
}

}  // namespace afd::daemon
