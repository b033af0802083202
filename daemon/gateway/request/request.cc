// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/request/request.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/gateway/request/prompt.h"
#include "model/grammar/response_program.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_params.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

constexpr int kStopIdsMax = 128;
constexpr int kEndIdsMax = 16;

Result<> check_ends(const client::Generate& generate, const ServedModel& model) {
    AFD_TRY(OutputText::check(generate, model.tokenizer));
    if (generate.stop_token_ids_size() > kStopIdsMax) {
        return invalid_argument("stop_token_ids has {} ids: at most {} are taken",
                                with(generate.stop_token_ids_size(), kStopIdsMax));
    }
    if (generate.end_token_ids_size() > kEndIdsMax) {
        return invalid_argument("end_token_ids has {} ids: at most {} are taken",
                                with(generate.end_token_ids_size(), kEndIdsMax));
    }
    AFD_TRY(check_ids(generate.end_token_ids(), "end_token_ids", model.vocab_size));
    return check_ids(generate.stop_token_ids(), "stop_token_ids", model.vocab_size);
}

Result<> check_response_format(const client::Generate& generate, ServedModel& model) {
    if (!generate.sampling().has_response_format()) return {};
    if (model.tokenizer == nullptr) {
        return invalid_argument(
            "response_format is not supported: this model has no tokenizer, so its output is no "
            "text");
    }
    const bool has_end = !model.stop_ids.empty() || !generate.end_token_ids().empty();
    if (generate.ignore_eos() || !has_end) {
        return invalid_argument("response_format is given, {}: what is complete has to end",
                                with(generate.ignore_eos() ? "and so is ignore_eos"
                                                           : "and the model has no end token"));
    }
    const auto& format = generate.sampling().response_format();
    return model.formats.of(format.SerializeAsString(), [&]() -> Result<> {
        const auto program = model::response_program(format);
        return program.ok() ? Result<>() : Result<>(program.error());
    });
}

Result<> check_numbers(const client::Generate& generate) {
    if (generate.max_tokens() > 0 && generate.min_tokens() > generate.max_tokens()) {
        return invalid_argument("min_tokens = {}: must be at most max_tokens = {}",
                                with(generate.min_tokens(), generate.max_tokens()));
    }
    if (generate.top_logprobs() > model::kTopLogprobsMax) {
        return invalid_argument("top_logprobs = {}: must be at most {}",
                                with(generate.top_logprobs(), model::kTopLogprobsMax));
    }
    return {};
}

}  // namespace

Request::Request(const client::Generate& generate,
                 std::vector<uint32_t> prompt,
                 const model::Tokenizer* tokenizer)
    : text_(generate, prompt, tokenizer),
      tokens_(std::move(prompt)),
      num_prompt_tokens_(static_cast<uint32_t>(tokens_.size())),
      min_tokens_(generate.min_tokens()),
      sampling_(generate.sampling()),
      wished_stop_ids_(generate.stop_token_ids().begin(), generate.stop_token_ids().end()),
      return_token_ids_(generate.return_token_ids()),
      return_logprobs_(generate.return_logprobs()),
      prompt_logprobs_(generate.prompt_logprobs()),
      keeps_stop_(generate.include_stop_str_in_output()) {}

Result<std::unique_ptr<Request>> Request::create(const client::Generate& generate,
                                                 ServedModel& model,
                                                 uint64_t kv_tokens,
                                                 uint64_t drawn_seed) {
    AFD_TRY(model::validate(generate.sampling(), model.vocab_size));
    AFD_TRY(check_response_format(generate, model));
    AFD_TRY(check_numbers(generate));
    AFD_TRY(check_ends(generate, model));
    const TokenLimit limit(model, kv_tokens);
    AFD_ASSIGN(std::vector<uint32_t> prompt, prompt_of(generate, model, limit));
    // It fits, so the sum does not wrap.
    const uint64_t total =
        generate.max_tokens() == 0 ? limit.tokens : prompt.size() + generate.max_tokens();
    std::unique_ptr<Request> request(new Request(generate, std::move(prompt), model.tokenizer));
    request->max_total_tokens_ = static_cast<uint32_t>(total);
    request->vocab_size_ = model.vocab_size;
    if (!request->sampling_.has_seed()) request->sampling_.set_seed(drawn_seed);
    request->stop_ids_ = request->wished_stop_ids_;
    if (!generate.ignore_eos()) {
        std::vector<uint32_t>& ends = request->end_ids_;
        ends = model.stop_ids;
        ends.insert(ends.end(), generate.end_token_ids().begin(), generate.end_token_ids().end());
        request->stop_ids_.insert(request->stop_ids_.end(), ends.begin(), ends.end());
    }
    request->num_top_logprobs_ = std::min(generate.top_logprobs(), model.vocab_size);
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
    admit.mutable_end_ids()->Assign(end_ids_.begin(), end_ids_.end());
    admit.set_min_tokens(min_tokens_);
    admit.set_num_top_logprobs(num_top_logprobs_);
    return admit;
}

control::Admit Request::admit_for_one(uint64_t sequence_id) const {
    control::Admit one = admit(sequence_id);
    one.set_max_total_tokens(static_cast<uint32_t>(tokens_.size()) + 1);
    return one;
}

Result<std::optional<client::Chunk>> Request::on_token(const control::TokenEvent& event) {
    // The worker is a step ahead of what it is told.
    if (is_text_over()) return std::optional<client::Chunk>();
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
    AFD_TRY(check_top(event.top_ids_size(), event.top_logprobs_size(), 1));
    tokens_.push_back(event.token());
    client::Chunk chunk;
    chunk.set_num_tokens(1);
    // A token that ends the text is part of it only on request, as with stop strings.
    if (!is_among(stop_ids_) || keeps_stop_) {
        chunk.set_text(text_.append(event.token(), num_output_tokens()));
    }
    if (return_token_ids_) chunk.add_token_ids(event.token());
    if (return_logprobs_) chunk.add_logprobs(event.logprob());
    if (num_top_logprobs_ > 0) {
        client::TopLogprobs& top = *chunk.add_top_logprobs();
        *top.mutable_token_ids() = event.top_ids();
        *top.mutable_logprobs() = event.top_logprobs();
    }
    return std::optional(std::move(chunk));
}

Result<> Request::check_top(int num_ids, int num_logprobs, int num_places) const {
    const int64_t num_top = int64_t{num_top_logprobs_} * num_places;
    if (num_ids == num_top && num_logprobs == num_top) return {};
    return internal("the attention worker sent {} top_ids and {} top_logprobs, not {}",
                    with(num_ids, num_logprobs, num_top));
}

Result<std::optional<client::Chunk>> Request::on_prompt_logprobs(
    const control::PromptLogprobsEvent& event) {
    AFD_TRY(check_top(event.top_ids_size(), event.top_logprobs_size(), event.values_size()));
    const auto num_top = static_cast<int>(num_top_logprobs_);
    client::Chunk chunk;
    for (int i = 0; i < event.values_size(); ++i) {
        const uint64_t position = uint64_t{event.first_position()} + static_cast<uint64_t>(i);
        // A replay reports them anew from the start; each goes to the client once.
        if (position != next_prompt_logprob_ || position >= num_prompt_tokens_) continue;
        chunk.add_prompt_logprobs(event.values(i));
        ++next_prompt_logprob_;
        if (num_top == 0) continue;
        client::TopLogprobs& top = *chunk.add_prompt_top_logprobs();
        for (int k = i * num_top; k < (i + 1) * num_top; ++k) {
            top.add_token_ids(event.top_ids(k));
            top.add_logprobs(event.top_logprobs(k));
        }
    }
    if (!prompt_logprobs_ || chunk.prompt_logprobs().empty()) {
        return std::optional<client::Chunk>();
    }
    return std::optional(std::move(chunk));
}

std::optional<client::Chunk> Request::on_end() {
    std::string rest = text_.finish();
    if (rest.empty()) return std::nullopt;
    client::Chunk chunk;
    chunk.set_text(std::move(rest));
    return chunk;
}

bool Request::is_among(const std::vector<uint32_t>& ids) const {
    return num_output_tokens() > 0 &&
           std::find(ids.begin(), ids.end(), tokens_.back()) != ids.end();
}

bool Request::is_complete() const {
    if (num_output_tokens() == 0) return false;
    return is_text_over() || tokens_.size() >= max_total_tokens_ || is_among(stop_ids_);
}

client::FinishReason Request::finish_reason() const {
    return is_text_over() || is_among(stop_ids_) ? client::STOP : client::LENGTH;
}

void Request::describe_end(client::Finished& finished) const {
    finished.set_num_prompt_tokens(num_prompt_tokens_);
    finished.set_num_output_tokens(num_output_tokens());
    if (finished.reason() != client::STOP) return;
    if (is_text_over()) {
        finished.set_matched_stop(*text_.match());
    } else if (is_among(wished_stop_ids_)) {
        finished.set_matched_stop_token_id(tokens_.back());
    }
}

}  // namespace afd::daemon
