// SPDX-License-Identifier: Apache-2.0
#pragma once

// TextSample: a text that a model is measured on, as its tokenizer reads it. Read once, before the
// work: what is wrong with a text shows at once.

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/status.h"

namespace afd::tools {

struct TextSample {
    // Errors: those of model::read_text_file() and Tokenizer::encode(); kInvalidArgument (fewer
    // than two tokens), kDataLoss (a token that the model does not have). Each names the file.
    static Result<TextSample> read(const std::string& path,
                                   model::Tokenizer& tokenizer,
                                   const model::ModelConfig& config);

    std::string path;
    std::string hash;                   // 16 hexadecimal digits, FNV-1a of its bytes.
    std::vector<int32_t> start;         // What every prompt begins with: often a BOS, or nothing.
    std::vector<int32_t> tokens;        // Of the text itself.
    std::vector<uint32_t> token_bytes;  // [tokens]: how many each stands for.
};

}  // namespace afd::tools
