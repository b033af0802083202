// SPDX-License-Identifier: Apache-2.0
#pragma once

// OutputText: from the tokens of a request to the text that its client gets: whole UTF-8
// characters, up to the first stop string.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/tokenizer/stop_strings.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class OutputText {
  public:
    // What is wrong with the stop strings of a request. Errors: kInvalidArgument.
    static Result<> check(const client::Generate& generate, const model::Tokenizer* tokenizer);

    // `prompt`: what the tokens come behind. Null `tokenizer`: there is no text.
    // REQUIRES: check().ok().
    OutputText(const client::Generate& generate,
               std::span<const uint32_t> prompt,
               const model::Tokenizer* tokenizer);

    // The new text after output token number `num_tokens`, from 1. No stop string ends in the text
    // of the first min_tokens.
    std::string append(uint32_t token, uint32_t num_tokens);
    // The rest at the end of the request.
    std::string finish();

    // The stop string that ended the text.
    const std::optional<std::string>& match() const { return stops_.match(); }

  private:
    std::string searched(std::string_view text);

    std::optional<model::StreamDecoder> decoder_;
    model::StopStrings stops_;
    uint32_t min_tokens_;
    bool may_end_ = false;
};

}  // namespace afd::daemon
