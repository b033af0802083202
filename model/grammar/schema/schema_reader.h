// SPDX-License-Identifier: Apache-2.0
#pragma once

// A JSON Schema as a client sent it, read and judged: what is not in Schema is refused by name,
// since a text that looks constrained and is not is worse than an error.
//
// Known: type (also a list), properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, bounds of numbers (whole ones, but for integers), enum,
// const, anyOf, oneOf where no value fits two choices, allOf of one, $ref within the schema ("#",
// "#/$defs/..."), true, and of a string without lengths the formats of string_formats.h. Any other
// format, and nullable, are passed over and listed (JsonSchema::ignored). Annotations (title,
// description, default, examples, x-..., ...) are passed over silently: they say nothing about the
// text.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/schema/schema.h"
#include "model/json/look_budget.h"
#include "proto/status.h"

namespace afd::model {

struct JsonSchema {
    SchemaList schemas;
    // Where something stands that the text is not held to, as "/properties/a/format"; of many
    // places the first kIgnoredMax.
    std::vector<std::string> ignored;
    static constexpr size_t kIgnoredMax = 64;
};

// What a client may send.
inline constexpr size_t kSchemaBytesMax = size_t{64} << 10;

// REQUIRES: nothing; `text` is a client's. Errors: kInvalidArgument, "json_schema: <place>: <what
// is wrong, and what is known>"; without a place for what is no JSON, or beyond a limit of
// ordered_json.h.
Result<JsonSchema> read_json_schema(std::string_view text);
// One of several schemas of a client, which share `looks` for what are_disjoint() takes.
Result<JsonSchema> read_json_schema(std::string_view text, LookBudget& looks);

}  // namespace afd::model
