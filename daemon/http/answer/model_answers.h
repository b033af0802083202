// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is answered about the model without asking it: its name, and what its tokenizer says.

#include <string_view>

#include "daemon/http/call/api_model.h"
#include "daemon/http/message/http_response.h"

namespace afd::daemon {

// GET /v1/models.
HttpResponse answer_models(const ApiModel& model);
// GET /v1/models/NAME. `path`: the name as it stands in the path, percent-encoded.
HttpResponse answer_model(const ApiModel& model, std::string_view path);

// POST /tokenize: {"prompt", "add_special_tokens"}, or {"messages"} as of a chat -> {"count",
// "max_model_len", "tokens"}. A text that cannot fit the context is refused before it is looked at
// in full.
HttpResponse answer_tokenize(std::string_view body, const ApiModel& model);
// POST /detokenize: {"tokens", "skip_special_tokens"} -> {"prompt"}; special tokens are text unless
// the second is true.
HttpResponse answer_detokenize(std::string_view body, const ApiModel& model);

}  // namespace afd::daemon
