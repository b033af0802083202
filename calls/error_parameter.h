// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which parameter an error of an operator is about.

#include <string>
#include <string_view>

#include "ops/record/operator_spec.h"

namespace afd::calls {

// The first word of the message that the record has as an attribute or a tensor; else, where the
// sentence begins with a dimension ("H is ..."), the first tensor that has it, or with the name of
// something else ("session_num is 0; ...", "workspace begins at ..."), that; else nothing.
std::string error_parameter(const ops::OperatorSpec& spec, std::string_view message);

}  // namespace afd::calls
