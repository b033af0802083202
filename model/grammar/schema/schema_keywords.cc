// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array kKnown{"$defs",
                            "$ref",
                            "additionalProperties",
                            "allOf",
                            "anyOf",
                            "const",
                            "definitions",
                            "enum",
                            "exclusiveMaximum",
                            "exclusiveMinimum",
                            "items",
                            "maxItems",
                            "maxLength",
                            "maximum",
                            "minItems",
                            "minLength",
                            "minimum",
                            "oneOf",
                            "prefixItems",
                            "properties",
                            "required",
                            "type"};
// Each says all of a schema; what stands beside it would be left out.
constexpr std::array kAlone{"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::array kAnnotations{"$comment",
                                  "$id",
                                  "$schema",
                                  "contentEncoding",
                                  "contentMediaType",
                                  "default",
                                  "deprecated",
                                  "description",
                                  "discriminator",
                                  "example",
                                  "examples",
                                  "externalDocs",
                                  "format",
                                  "nullable",
                                  "readOnly",
                                  "title",
                                  "writeOnly"};

template <typename Names>
bool is_in(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_annotation(std::string_view key) {
    return is_in(kAnnotations, key) || key.starts_with("x-");
}

// Whether `other` may stand beside `key`, which says all: where schemas are kept, and what else is
// said of values that are listed anyhow.
bool may_stand_beside(std::string_view key, std::string_view other) {
    if (other == key || other == "$defs" || other == "definitions") return true;
    constexpr std::array<std::string_view, 3> kOfValues = {"enum", "const", "type"};
    return is_in(kOfValues, key) && is_in(kOfValues, other);
}

}  // namespace

Result<> check_keywords(const OrderedJson& schema, bool is_root, const std::string& where) {
    for (const auto& [key, value] : schema.items()) {
        // Within a schema it would say what "#" is there.
        if (key == "$id" && !is_root) {
            return invalid_argument("json_schema: {}: $id is not supported within a schema",
                                    with(where));
        }
        if (is_annotation(key)) continue;
        if (!is_in(kKnown, key)) {
            return invalid_argument(
                "json_schema: {}: {} is not supported; known are {}",
                with(where, shown_text(key), fmt::to_string(fmt::join(kKnown, ", "))));
        }
        if (!is_in(kAlone, key)) continue;
        for (const auto& [other, unused] : schema.items()) {
            if (is_annotation(other) || may_stand_beside(key, other)) continue;
            return invalid_argument("json_schema: {}: {} beside {} is not supported",
                                    with(where, shown_text(other), key));
        }
    }
    return {};
}

}  // namespace afd::model
