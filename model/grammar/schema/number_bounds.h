// SPDX-License-Identifier: Apache-2.0
#pragma once

// minimum, maximum, exclusiveMinimum and exclusiveMaximum of a JSON Schema.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "model/grammar/schema/number_range.h"
#include "proto/status.h"

namespace afd::model {

// Those of `schema`, for integers or for all numbers; nothing: it has none that a text could meet.
// `where`: its place, for errors. Errors: kInvalidArgument: what is no number, a bound of numbers
// that is not whole, and bounds between which there is none.
Result<std::optional<NumberRange>> read_number_bounds(const nlohmann::ordered_json& schema,
                                                      bool is_whole,
                                                      const std::string& where);

}  // namespace afd::model
