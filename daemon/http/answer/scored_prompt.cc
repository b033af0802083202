// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/scored_prompt.h"

#include <utility>

#include "model/unicode/utf8.h"

namespace afd::daemon {

ScoredPrompt::ScoredPrompt(std::vector<uint32_t> ids,
                           const GenerationCall::Echo& echo,
                           const ApiModel& model)
    : ids_(std::move(ids)), echo_(echo) {
    if (model.tokenizer != nullptr) decoder_.emplace(*model.tokenizer, echo.keeps_special);
}

void ScoredPrompt::add(const client::Chunk& chunk, LogprobsText& out) {
    // The first token has none before it, hence no log probability.
    if (next_ == 0 && has_rest()) add_token(std::nullopt, {}, out);
    for (int i = 0; i < chunk.prompt_logprobs_size() && has_rest(); ++i) {
        std::vector<LogprobsText::Alternative> top;
        if (i < chunk.prompt_top_logprobs_size()) {
            top = LogprobsText::alternatives_of(chunk.prompt_top_logprobs(i));
        }
        add_token(chunk.prompt_logprobs(i), top, out);
    }
}

void ScoredPrompt::add_rest(LogprobsText& out) {
    while (has_rest()) add_token(std::nullopt, {}, out);
}

void ScoredPrompt::add_token(std::optional<float> logprob,
                             const std::vector<LogprobsText::Alternative>& top,
                             LogprobsText& out) {
    const uint32_t id = ids_[next_];
    out.add(id, logprob, offset_, top);
    const bool is_said =
        next_ >= echo_.num_added_before && next_ + echo_.num_added_behind < ids_.size();
    if (decoder_ && is_said) offset_ += model::num_characters(decoder_->append(id));
    ++next_;
}

}  // namespace afd::daemon
