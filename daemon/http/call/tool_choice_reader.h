// SPDX-License-Identifier: Apache-2.0
#pragma once

// `tool_choice` in the body of a chat completion, and the constraint that it becomes where the
// model has to call.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/call/field_reader.h"
#include "daemon/http/message/api_error.h"
#include "model/chat/template/chat_template.h"
#include "proto/sampling.pb.h"

namespace afd::daemon {

struct ToolChoice {
    enum class Kind { kAuto, kNone, kRequired };
    Kind kind = Kind::kAuto;
    std::string name = {};  // kRequired: of the one tool to call; empty: any.
};

// What is wrong with it is in `fields`.
ToolChoice read_tool_choice(FieldReader& fields);

// One call of a tool in the form of the model, with arguments of its parameters. `body`: of the
// request, whose `tools` were read. `chat` renders it. Errors: 400: there is no such tool, or its
// parameters ask for what is not supported, or they are beyond the limits of
// model/json/ordered_json.h, or the calls of the model's template are not JSON.
// `ignored`: gets the places in the parameters that the arguments are not held to.
std::optional<ApiError> force_call(const ToolChoice& choice,
                                   std::string_view body,
                                   const model::ChatTemplate& chat,
                                   model::ToolSyntax syntax,
                                   SamplingSettings& sampling,
                                   std::vector<std::string>& ignored);

// Of a call that the model makes on its own nothing is forced: the tools whose `strict` asks for it
// go to `ignored`. REQUIRES: `tools` was read, without an error.
void note_strict_tools(FieldReader& fields, std::vector<std::string>& ignored);

}  // namespace afd::daemon
