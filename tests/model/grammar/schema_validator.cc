// SPDX-License-Identifier: Apache-2.0
#include "tests/model/grammar/schema_validator.h"

#include <algorithm>
#include <string>

namespace afd::model {
namespace {

using Json = nlohmann::json;

size_t code_points(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

bool is_within(size_t count, const Json& schema, const char* least, const char* most) {
    return count >= schema.value(least, size_t{0}) && count <= schema.value(most, SIZE_MAX);
}

bool has_type(const Json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    return type == "array" ? value.is_array() : value.is_object();
}

bool array_is_valid(const Json& value, const Json& schema, const Json& root) {
    if (!is_within(value.size(), schema, "minItems", "maxItems")) return false;
    const Json first = schema.value("prefixItems", Json::array());
    const Json rest = schema.value("items", Json(true));
    for (size_t i = 0; i < value.size(); ++i) {
        if (!is_valid(value[i], i < first.size() ? first[i] : rest, root)) return false;
    }
    return true;
}

bool object_is_valid(const Json& value, const Json& schema, const Json& root) {
    const Json properties = schema.value("properties", Json::object());
    for (const Json& name : schema.value("required", Json::array())) {
        if (!value.contains(name.get<std::string>())) return false;
    }
    const Json rest = schema.value("additionalProperties", Json(properties.empty()));
    for (const auto& [name, member] : value.items()) {
        if (!is_valid(member, properties.contains(name) ? properties[name] : rest, root)) {
            return false;
        }
    }
    return true;
}

}  // namespace

bool is_valid(const Json& value, const Json& schema, const Json& root) {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("$ref")) {
        const std::string pointer = schema["$ref"].get<std::string>().substr(1);
        return is_valid(value, root.at(Json::json_pointer(pointer)), root);
    }
    if (schema.contains("type")) {
        const Json& type = schema["type"];
        const Json types = type.is_array() ? type : Json::array({type});
        const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& name) {
            return has_type(value, name.get<std::string>());
        });
        if (!fits) return false;
    }
    if (schema.contains("const")) return value == schema["const"];
    if (schema.contains("enum")) {
        return std::find(schema["enum"].begin(), schema["enum"].end(), value) !=
               schema["enum"].end();
    }
    if (schema.contains("anyOf")) {
        return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(), [&](const Json& one) {
            return is_valid(value, one, root);
        });
    }
    if (value.is_string()) {
        return is_within(code_points(value.get<std::string>()), schema, "minLength", "maxLength");
    }
    if (value.is_array()) return array_is_valid(value, schema, root);
    return !value.is_object() || object_is_valid(value, schema, root);
}

}  // namespace afd::model
