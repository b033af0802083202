// SPDX-License-Identifier: Apache-2.0
#pragma once

// Perplexity of a checkpoint on a text, by the kernels that serve it.

#include <cstddef>
#include <functional>
#include <string>

#include "proto/status.h"
#include "tools/afd-quantize/quantise_checkpoint.h"

namespace afd {

struct Perplexity {
    double value = 0;          // exp of the mean negative log-likelihood of a token.
    size_t num_scored = 0;     // Tokens that it was measured on.
    size_t window = 0;         // The text is cut into windows of so many tokens; the first of each
                               // is not scored.
    double bits_per_byte = 0;  // Of the scored tokens' bytes.
};

// Errors: of reading the model or the text; kInvalidArgument for a text of fewer than two tokens.
// `progress` is called with the share done, 0 to 1. `ranges`, if given, become those of the text.
Result<Perplexity> measure_perplexity(const std::string& model_directory,
                                      const std::string& text_file,
                                      const std::function<void(double)>& progress,
                                      ChannelRanges* ranges = nullptr);

}  // namespace afd
