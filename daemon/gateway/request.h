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

#include "model/tokenizer/tokenizer.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// What the gateway knows of the served model.
struct ServedModel {
    std::string directory;
    uint32_t vocab_size = 0;
    uint32_t context_length = 0;
    std::vector<uint32_t> stop_ids;         // End-of-text tokens.
    model::Tokenizer* tokenizer = nullptr;  // Not owned.
};

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
    // Prompt and output: what is reserved.
    uint32_t max_total_tokens() const { return max_total_tokens_; }

    client::Accepted accepted() const;

    // What an attention worker is told: for a replay with the tokens already sent.
    control::Admit admit(uint64_t sequence_id) const;

    // Turn an event into what the client gets; nothing if it gets nothing.
    // Errors: kInternal: the worker sent what it must not.
    Result<std::optional<client::Chunk>> on_token(const control::TokenEvent& event);
    std::optional<client::Chunk> on_prompt_logprobs(const control::PromptLogprobsEvent& event);
    // The rest of the text at the end of a request: of an unfinished UTF-8 character.
    std::optional<client::Chunk> on_end();

    // Whether everything was produced already, so that a replay has nothing left to do; then
    // finish_reason() tells why.
    bool is_complete() const;
    // STOP if the last token ends the text, else LENGTH.
    client::FinishReason finish_reason() const;

  private:
    explicit Request(const model::Tokenizer* tokenizer);
    bool ends_text(uint32_t token) const;

    std::optional<model::StreamDecoder> decoder_;
    std::vector<uint32_t> tokens_;  // Prompt, then what was produced.
    uint32_t num_prompt_tokens_ = 0;
    uint32_t max_total_tokens_ = 0;
    uint32_t vocab_size_ = 0;
    SamplingSettings sampling_;
    std::vector<uint32_t> stop_ids_;  // Empty with ignore_eos.
    bool return_token_ids_ = false;
    bool return_logprobs_ = false;
    bool prompt_logprobs_ = false;
    // Position of the next prompt logprob to send: the first token has none.
    uint32_t next_prompt_logprob_ = 1;
};

}  // namespace afd::daemon
