// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServedModel: what the gateway knows of the model that the instance serves.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/gateway/request/format_verdicts.h"
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
    FormatVerdicts formats = {};
};

}  // namespace afd::daemon
