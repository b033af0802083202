// SPDX-License-Identifier: Apache-2.0
#pragma once

// The attributes of a call, from JSON, against an operator's record.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "ops/record/operator_spec.h"
#include "proto/status.h"

namespace afd::calls {

// kInvalidArgument; `message` follows the operator's name.
Error refuse_call(const ops::OperatorSpec& spec, const std::string& message);

// Attributes as a caller writes them. Errors: kInvalidArgument: no JSON, a name that stands twice.
Result<nlohmann::json> parse_attributes(const ops::OperatorSpec& spec, std::string_view text);

// Every attribute of the record: as `given`, else its default. Whether a value is in its range is
// the operator's judgement. Errors: kInvalidArgument: no object, a name that the record does not
// have, a value of another kind, an attribute without a default that is missing.
Result<nlohmann::json> complete_attributes(const ops::OperatorSpec& spec,
                                           const nlohmann::json& given);

}  // namespace afd::calls
