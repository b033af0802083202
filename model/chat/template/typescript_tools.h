// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tools as gpt-oss sees them: a namespace with a type for each function, in a language of types and
// not as JSON. What a schema says beyond types, enums, defaults and descriptions is not shown.

#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::model {

// `tools`: as in a Conversation. Errors: kInvalidArgument, beginning with "tools[i]": no function.
Result<std::string> typescript_namespace(const std::vector<std::string>& tools);

}  // namespace afd::model
