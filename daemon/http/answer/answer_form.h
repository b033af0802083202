// SPDX-License-Identifier: Apache-2.0
#pragma once

// AnswerForm: what makes the answer to a resumable completion, beside what the gateway says of it.
// Kept by the gateway with what it has said, so that another session can answer again.

#include <cstdint>
#include <string>

#include "daemon/http/call/generation_call.h"

namespace afd::daemon {

// What every object and event of an answer begins with. A stream that goes on with another afdd
// says the same there, whatever that one serves.
struct AnswerHead {
    std::string id = {};                  // "cmpl-...".
    int64_t created = 0;                  // Seconds since 1970.
    std::string model = {};               // ApiModel::id where it began,
    std::string system_fingerprint = {};  // and the program there.
};

struct AnswerForm {
    GenerationCall call;  // Without its prompts, but as many.
    AnswerHead head;
};

}  // namespace afd::daemon
