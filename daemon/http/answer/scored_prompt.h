// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScoredPrompt: the tokens of a prompt that is echoed, on their way into a LogprobsText with the
// log probabilities that come of them, in their order and each once. Where the text goes is the
// answer's.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/http/answer/logprobs_text.h"
#include "daemon/http/call/generation_call.h"
#include "model/tokenizer/stream_decoder.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class ScoredPrompt {
  public:
    // `echo` and `model` outlive the object.
    ScoredPrompt(std::vector<uint32_t> ids,
                 const GenerationCall::Echo& echo,
                 const ApiModel& model);

    // The tokens that a Chunk has the log probabilities of; and the first one, which has none.
    void add(const client::Chunk& chunk, LogprobsText& out);
    bool has_rest() const { return next_ < ids_.size(); }
    // Those of which no log probability has come.
    void add_rest(LogprobsText& out);

  private:
    void add_token(std::optional<float> logprob,
                   const std::vector<LogprobsText::Alternative>& top,
                   LogprobsText& out);

    std::vector<uint32_t> ids_;
    const GenerationCall::Echo& echo_;
    std::optional<model::StreamDecoder> decoder_;  // With a tokenizer: counts characters.
    size_t next_ = 0;                              // Of ids_.
    uint64_t offset_ = 0;                          // In the text, of that token.
};

}  // namespace afd::daemon
