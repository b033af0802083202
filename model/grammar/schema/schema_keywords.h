// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which keywords of JSON Schema are known, and which of them stand alone.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/status.h"

namespace afd::model {

// Errors: kInvalidArgument: a keyword of `schema`, an object, is not known, or stands beside one
// that says all of a schema. `is_root`: it is the whole. `where`: its place, for errors.
Result<> check_keywords(const nlohmann::ordered_json& schema,
                        bool is_root,
                        const std::string& where);

}  // namespace afd::model
