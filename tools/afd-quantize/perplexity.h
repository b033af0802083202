// SPDX-License-Identifier: Apache-2.0
#pragma once

// Perplexity of a checkpoint on a text, by the kernels that serve it and with the residual stream
// as afdd has it if nobody says otherwise. The text is cut into windows; each is read behind what
// every prompt begins with (Tokenizer::prompt_start()), which is not scored.

#include <cstddef>
#include <functional>
#include <string>

#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"
#include "tools/afd-quantize/smooth_columns.h"
#include "tools/afd-quantize/streamed_decoder.h"
#include "tools/afd-quantize/text_sample.h"

namespace afd::tools {

struct Perplexity {
    double value = 0;          // exp of the mean negative log-likelihood of a token.
    size_t num_scored = 0;     // Tokens that it was measured on.
    size_t window = 0;         // Tokens of the text in a window; the first of each is not scored.
    double bits_per_byte = 0;  // Of the scored tokens' bytes.
};

// What is looked at, or done otherwise, on the way.
struct PerplexityOptions {
    ChannelRanges* ranges = nullptr;        // Become those of all that is read.
    ops::KvDtype kv = ops::KvDtype::kBf16;  // How keys and values are kept (afdd's kv_dtype).
    ops::Int4Rows int4_rows = ops::Int4Rows::kBf16;  // What int4 experts multiply.
    StreamedDecoder::OnCache on_cache = nullptr;     // Optional.
};

// Rows that memory need not hold go into files in `scratch` (streamed_decoder.h).
// Errors: of reading the model, and those of StreamedDecoder. `progress` is called with the share
// done, 0 to 1. REQUIRES: `text` was read for this model, or for one with the same configuration.
Result<Perplexity> measure_perplexity(const std::string& model_directory,
                                      const TextSample& text,
                                      const std::string& scratch,
                                      ops::Parallel& parallel,
                                      const std::function<void(double)>& progress,
                                      const PerplexityOptions& options = {});

}  // namespace afd::tools
