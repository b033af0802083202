// SPDX-License-Identifier: Apache-2.0
#pragma once

// A JSON Schema as a client sent it, read and judged: what is not in Schema is refused by name,
// since a text that looks constrained and is not is worse than an error.
//
// Known: type (also a list), properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, enum, const, anyOf, $ref within the schema ("#",
// "#/$defs/..."), true, and of a string without lengths the formats of string_formats.h. Any other
// format is passed over and listed (JsonSchema::ignored). Annotations (title, description, default,
// examples, ...) are passed over silently: they say nothing about the text.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/string_formats.h"
#include "proto/status.h"

namespace afd::model {

struct Schema {
    enum class Kind : uint8_t {
        kAny,
        kNull,
        kBoolean,
        kInteger,
        kNumber,
        kString,   // length, or format
        kArray,    // length, items, rest
        kObject,   // members, rest
        kSpelled,  // texts: one of them, byte by byte
        kAnyOf,    // items: one of them
    };
    // How often something comes; `most` empty: without end. least <= most.
    struct Count {
        size_t least = 0;
        std::optional<size_t> most = {};
    };
    struct Member {
        std::string name;
        uint32_t schema = 0;
        bool is_required = false;
    };

    Kind kind = Kind::kAny;
    Count length = {};  // Code points, or elements.
    std::optional<StringFormat> format = {};
    std::vector<uint32_t> items = {};   // Of the first elements, or the choices.
    std::vector<Member> members = {};   // In the order of the text.
    std::optional<uint32_t> rest = {};  // Further elements, or members of other names; empty: none.
    std::vector<std::string> texts = {};  // JSON without blanks.
};

// Schemas refer to each other by their places in the list; the first is the whole.
using SchemaList = std::vector<Schema>;

struct JsonSchema {
    SchemaList schemas;
    // Where something stands that the text is not held to, as "/properties/a/format".
    std::vector<std::string> ignored;
};

// What a client may send.
inline constexpr size_t kSchemaBytesMax = size_t{64} << 10;

// REQUIRES: nothing; `text` is a client's. Errors: kInvalidArgument, "json_schema: <place>: <what
// is wrong, and what is known>"; without a place for what is no JSON, or beyond a limit of
// ordered_json.h.
Result<JsonSchema> read_json_schema(std::string_view text);

// Whether every text of the first of `schemas` is an object.
bool is_of_objects(const SchemaList& schemas);

}  // namespace afd::model
