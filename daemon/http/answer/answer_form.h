// SPDX-License-Identifier: Apache-2.0
#pragma once

// AnswerForm: what makes the answer to a resumable completion, beside what the gateway says of it.
// Kept by the gateway with what it has said, so that another session can answer again.

#include <cstdint>
#include <string>

#include "daemon/http/call/generation_call.h"

namespace afd::daemon {

struct AnswerForm {
    GenerationCall call;  // Without its prompt.
    std::string id;
    int64_t created = 0;
};

}  // namespace afd::daemon
