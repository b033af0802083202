// SPDX-License-Identifier: Apache-2.0
#pragma once

// GenerateProgress: follows the responses to one Generate or Resume request and checks their order
// (Accepted, Chunk..., then Finished or Error) and that the tokens of the chunks, with those that
// came before a Resume, add up to what Finished says. Keeps counts, no text.

#include <cstdint>

#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::client {

// The Error of the wire as an afd::Error; a code that this version does not know becomes kInternal.
afd::Error to_error(const afd::client::Error& message);

class GenerateProgress {
  public:
    enum class Step { kAccepted, kChunk, kFinished };

    // Takes the next response.
    // Errors: the request's own error as afdd reports it; kDataLoss if the response does not fit
    // (out of order, of another kind, or counts that disagree). After an error, or kFinished, the
    // request is over.
    Result<Step> take(const Response& response);

    bool accepted() const { return accepted_; }
    uint64_t num_tokens() const { return num_tokens_; }

  private:
    bool accepted_ = false;
    bool over_ = false;
    uint64_t num_tokens_ = 0;
};

}  // namespace afd::client
