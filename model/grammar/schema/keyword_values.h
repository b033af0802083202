// SPDX-License-Identifier: Apache-2.0
#pragma once

// What those keywords of a JSON Schema say that lead to no other schema. The bounds of numbers:
// number_bounds.h.
//
// `schema` is an object that check_keywords() took. `where`: its place, for errors.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/grammar/schema/schema.h"
#include "model/grammar/schema/string_formats.h"
#include "proto/status.h"

namespace afd::model {

// Its `type`, or its types; where it has none, the one that its other keywords are of.
// Errors: kInvalidArgument: a type that is not known.
Result<std::vector<Schema::Kind>> read_kinds(const nlohmann::ordered_json& schema,
                                             const std::string& where);

// The values that it lists, as JSON without blanks: those of `enum` that are the `const`, where
// both are given (pydantic writes both of a literal), and of its `type`. REQUIRES: it has one of
// both. Errors: kInvalidArgument: there are none.
Result<std::vector<std::string>> read_listed_texts(const nlohmann::ordered_json& schema,
                                                   const std::string& where);

// Its members `least_name` and `most_name`. Errors: kInvalidArgument: what is no count, or beyond
// 100,000, and a least that is more than the most.
Result<Schema::Count> read_counts(const nlohmann::ordered_json& schema,
                                  const char* least_name,
                                  const char* most_name,
                                  const std::string& where);

// What a string is held to. One with lengths, too, would take a state for each of both.
std::optional<StringFormat> format_of(const nlohmann::ordered_json& schema);

// Whether its `format` says no more than what is held to; any JSON. Where values are listed they
// have the format that they have. REQUIRES: its `type` was read.
bool is_held_to_format(const nlohmann::ordered_json& schema);

}  // namespace afd::model
