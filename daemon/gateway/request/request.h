// SPDX-License-Identifier: Apache-2.0
#pragma once

// Request: one accepted Generate, from admission to its end, across the deaths of workers.
//
// It holds everything that a replay needs (the prompt, what was sent, the seed), turns a worker's
// events into Chunks, and sees to it that the client gets everything once: a replayed worker
// starts behind the tokens already sent, and prompt logprobs that were sent are dropped.
// Pure: it knows no socket and no clock.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/gateway/request/output_text.h"
#include "daemon/gateway/request/served_model.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Request {
  public:
    // Validates and tokenizes. `kv_tokens`: what one attention worker holds. `drawn_seed`: used
    // if the client gives none.
    // Errors: kInvalidArgument naming the field, its value and what is allowed.
    static Result<std::unique_ptr<Request>> create(const client::Generate& generate,
                                                   ServedModel& model,
                                                   uint64_t kv_tokens,
                                                   uint64_t drawn_seed);

    uint32_t num_prompt_tokens() const { return num_prompt_tokens_; }
    uint32_t num_output_tokens() const {
        return static_cast<uint32_t>(tokens_.size()) - num_prompt_tokens_;
    }
    // Prompt and output, at most.
    uint32_t max_total_tokens() const { return max_total_tokens_; }

    client::Accepted accepted() const;

    // What an attention worker is told: for a replay with the tokens already sent.
    control::Admit admit(uint64_t sequence_id) const;
    // The same for its next token alone. REQUIRES: !is_complete().
    control::Admit admit_for_one(uint64_t sequence_id) const;

    // Turn an event into what the client gets; nothing if it gets nothing.
    // Tokens after the text is over give nothing. Errors: kInternal: the worker sent what it must
    // not.
    Result<std::optional<client::Chunk>> on_token(const control::TokenEvent& event);
    Result<std::optional<client::Chunk>> on_prompt_logprobs(
        const control::PromptLogprobsEvent& event);
    // The rest of the text at the end of a request: of an unfinished UTF-8 character, or what might
    // have become a stop string. It may be a stop string: then the reason is STOP.
    std::optional<client::Chunk> on_end();

    // Whether everything was produced already, so that a replay has nothing left to do; then
    // finish_reason() tells why.
    bool is_complete() const;
    // Whether a stop string has ended the text; the worker, which knows nothing of text, goes on.
    bool is_text_over() const { return text_.match().has_value(); }
    // STOP if the last token or a stop string ends the text, else LENGTH.
    client::FinishReason finish_reason() const;
    // Sets numbers of tokens and, where the reason is STOP, what was matched.
    void describe_end(client::Finished& finished) const;

  private:
    Request(const client::Generate& generate,
            std::vector<uint32_t> prompt,
            const model::Tokenizer* tokenizer);
    // Whether a worker sent as many of the most likely tokens as it was asked for in each of so
    // many places.
    Result<> check_top(int num_ids, int num_logprobs, int num_places) const;
    // Whether the last output token is one of `ids`.
    bool is_among(const std::vector<uint32_t>& ids) const;

    OutputText text_;
    std::vector<uint32_t> tokens_;  // Prompt, then what was produced.
    uint32_t num_prompt_tokens_ = 0;
    uint32_t max_total_tokens_ = 0;
    uint32_t min_tokens_ = 0;
    uint32_t vocab_size_ = 0;
    uint32_t num_top_logprobs_ = 0;
    SamplingSettings sampling_;
    std::vector<uint32_t> wished_stop_ids_;  // Of the client.
    // These, and without ignore_eos the model's and those that the client calls ends:
    std::vector<uint32_t> stop_ids_;
    std::vector<uint32_t> end_ids_;
    bool return_token_ids_ = false;
    bool return_logprobs_ = false;
    bool prompt_logprobs_ = false;
    bool keeps_stop_ = false;
    // Position of the next prompt logprob to send: the first token has none.
    uint32_t next_prompt_logprob_ = 1;
};

}  // namespace afd::daemon
