// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/keyword_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Kind = Schema::Kind;

constexpr size_t kCountMax = 100'000;

constexpr std::array kTypeNames{std::pair{"null", Kind::kNull},
                                std::pair{"boolean", Kind::kBoolean},
                                std::pair{"integer", Kind::kInteger},
                                std::pair{"number", Kind::kNumber},
                                std::pair{"string", Kind::kString},
                                std::pair{"array", Kind::kArray},
                                std::pair{"object", Kind::kObject}};

bool is_of(const OrderedJson& value, Kind kind) {
    switch (kind) {
        case Kind::kNull:
            return value.is_null();
        case Kind::kBoolean:
            return value.is_boolean();
        case Kind::kInteger: {
            const bool is_float = value.is_number_float();
            return value.is_number_integer() || is_long_integer(value) ||
                   (is_float && std::trunc(value.get<double>()) == value.get<double>());
        }
        case Kind::kNumber:
            return value.is_number() || is_long_integer(value);
        case Kind::kString:
            return value.is_string();
        case Kind::kArray:
            return value.is_array();
        case Kind::kObject:
            return value.is_object();
        case Kind::kAny:
        case Kind::kSpelled:
        case Kind::kAnyOf:
            return true;
    }
    return true;
}

// Strictly such a schema allows all other types too; who lists properties means an object.
Kind kind_without_type(const OrderedJson& json) {
    const auto has = [&](auto... keys) { return (json.contains(keys) || ...); };
    if (has("properties", "required", "additionalProperties")) return Kind::kObject;
    if (has("items", "prefixItems", "minItems", "maxItems")) return Kind::kArray;
    if (has("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")) return Kind::kNumber;
    return has("minLength", "maxLength") ? Kind::kString : Kind::kAny;
}

// Those of enum that are the const, where both are given: pydantic writes both of a literal.
Result<OrderedJson> listed_values(const OrderedJson& json, const std::string& where) {
    if (!json.contains("enum")) return OrderedJson::array({json["const"]});
    const OrderedJson& values = json["enum"];
    if (!values.is_array() || values.empty()) {
        return invalid_argument("json_schema: {}: enum is {}; it must be a list of values",
                                with(where, shown_text(values)));
    }
    if (!json.contains("const")) return values;
    OrderedJson equal = OrderedJson::array();
    for (const OrderedJson& value : values) {
        if (value == json["const"]) equal.push_back(value);
    }
    if (!equal.empty()) return equal;
    return invalid_argument("json_schema: {}: const is {}, which is none of its enum",
                            with(where, shown_text(json["const"])));
}

Result<std::optional<size_t>> count(const OrderedJson& json,
                                    const char* name,
                                    const std::string& where) {
    if (!json.contains(name)) return std::optional<size_t>();
    const OrderedJson& value = json[name];
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kCountMax) {
        return invalid_argument("json_schema: {}: {} is {}; it must be 0 ... {}",
                                with(where, name, shown_text(value), kCountMax));
    }
    return std::optional(value.get<size_t>());
}

}  // namespace

Result<std::vector<Kind>> read_kinds(const OrderedJson& schema, const std::string& where) {
    if (!schema.contains("type")) return std::vector{kind_without_type(schema)};
    const OrderedJson& type = schema["type"];
    const OrderedJson names = type.is_array() ? type : OrderedJson::array({type});
    std::vector<Kind> kinds;
    for (const OrderedJson& name : names) {
        for (const auto& [known, kind] : kTypeNames) {
            if (name == known) kinds.push_back(kind);
        }
    }
    if (kinds.empty() || kinds.size() != names.size()) {
        return invalid_argument(
            "json_schema: {}: type is {}; known are null, boolean, integer, "
            "number, string, array, object, and lists of them",
            with(where, shown_text(type)));
    }
    return kinds;
}

Result<std::vector<std::string>> read_listed_texts(const OrderedJson& schema,
                                                   const std::string& where) {
    AFD_ASSIGN(const OrderedJson values, listed_values(schema, where));
    std::vector<Kind> kinds = {Kind::kAny};
    if (schema.contains("type")) {
        AFD_ASSIGN(kinds, read_kinds(schema, where));
    }
    std::vector<std::string> texts;
    for (const OrderedJson& value : values) {
        const auto is_of_it = [&](Kind kind) { return is_of(value, kind); };
        if (std::ranges::any_of(kinds, is_of_it)) texts.push_back(compact_text(value));
    }
    if (!texts.empty()) return texts;
    return invalid_argument("json_schema: {}: none of its values is of type {}",
                            with(where, shown_text(schema["type"])));
}

Result<Schema::Count> read_counts(const OrderedJson& schema,
                                  const char* least_name,
                                  const char* most_name,
                                  const std::string& where) {
    AFD_ASSIGN(const auto least, count(schema, least_name, where));
    AFD_ASSIGN(const auto most, count(schema, most_name, where));
    if (most && *most < least.value_or(0)) {
        return invalid_argument("json_schema: {}: {} is {}, and {} is {}",
                                with(where, least_name, *least, most_name, *most));
    }
    return Schema::Count{.least = least.value_or(0), .most = most};
}

std::optional<StringFormat> format_of(const OrderedJson& schema) {
    const auto format = schema.find("format");
    const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
    if (format == schema.end() || !format->is_string() || has_length) return std::nullopt;
    return string_format(format->get_ref<const std::string&>());
}

bool is_held_to_format(const OrderedJson& schema) {
    const bool is_silent = !schema.is_object() || !schema.contains("format");
    if (is_silent || schema.contains("enum") || schema.contains("const")) return true;
    const auto has = [&](auto... keys) { return (schema.contains(keys) || ...); };
    if (has("anyOf", "oneOf", "allOf", "$ref") || !has("type")) return false;
    const OrderedJson& type = schema["type"];
    const bool has_string =
        type == "string" ||
        (type.is_array() && std::find(type.begin(), type.end(), "string") != type.end());
    return has_string && format_of(schema).has_value();
}

}  // namespace afd::model
