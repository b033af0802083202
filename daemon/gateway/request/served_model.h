// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServedModel: what the gateway knows of the model that the instance serves.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/gateway/request/text_thread.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::daemon {

struct ServedModel {
    std::string directory;
    uint32_t vocab_size = 0;
    uint32_t context_length = 0;
    uint32_t window = 0;  // AttentionConfig::window(); 0: a sequence keeps all positions.
    std::vector<uint32_t> stop_ids;         // End-of-text tokens.
    model::Tokenizer* tokenizer = nullptr;  // Not owned.
    TextThread* texts = nullptr;            // Not owned. Null: the loop reads all texts itself.
    // The last response_format and what was found of it: a call for many choices has it as often,
    // clients send one again and again, and judging it costs up to ten milliseconds.
    std::string judged_format = {};
    Result<> format_verdict = {};
};

}  // namespace afd::daemon
