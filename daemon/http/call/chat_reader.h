// SPDX-License-Identifier: Apache-2.0
#pragma once

// The conversation in the body of a chat completion, and the prompt that it becomes.

#include <string>
#include <string_view>

#include "daemon/http/call/api_model.h"
#include "daemon/http/call/field_reader.h"
#include "daemon/http/message/api_error.h"
#include "model/chat/message/chat_message.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// `messages`, `tools` and what concerns them, of the request `body` that `fields` are of. The first
// problem is in `fields`.
model::Conversation read_conversation(FieldReader& fields, std::string_view body);

// The conversation as the model was trained to see it, as token ids.
// Errors: 400: the model has no template, none for these messages, or no room for so long a text.
ApiResult<client::TokenIds> render_prompt(const model::Conversation& conversation,
                                          const ApiModel& model);

}  // namespace afd::daemon
