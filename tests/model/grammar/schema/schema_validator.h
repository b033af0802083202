// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a JSON value is valid against a schema, by looking at the value: an oracle for programs
// that were made from the schema. Knows what schema.h says is known.

#include <nlohmann/json.hpp>

namespace afd::model {

// `schema` is part of `root`, where its $refs lead.
bool is_valid(const nlohmann::json& value,
              const nlohmann::json& schema,
              const nlohmann::json& root);

}  // namespace afd::model
