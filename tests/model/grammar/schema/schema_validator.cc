// SPDX-License-Identifier: Apache-2.0
#include "tests/model/grammar/schema/schema_validator.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

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

// `text` is digits where `form` has a 0, and what it says elsewhere.
bool has_form(const std::string& text, const std::string& form) {
    if (text.size() != form.size()) return false;
    for (size_t i = 0; i < form.size(); ++i) {
        const bool is_digit = text[i] >= '0' && text[i] <= '9';
        if (form[i] == '0' ? !is_digit : text[i] != form[i]) return false;
    }
    return true;
}

bool is_date(const std::string& text) {
    if (!has_form(text, "0000-00-00")) return false;
    const auto part = [&](size_t at, size_t size) { return std::stoi(text.substr(at, size)); };
    return std::chrono::year_month_day(std::chrono::year(part(0, 4)),
                                       std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                       std::chrono::day(static_cast<unsigned>(part(8, 2))))
        .ok();
}

bool is_time(std::string text) {
    const auto below = [](const std::string& digits, int end) { return std::stoi(digits) < end; };
    if (text.size() < 9) return false;
    std::string zone = text.substr(text.size() - (text.back() == 'Z' ? 1 : 6));
    text.erase(text.size() - zone.size());
    if (zone != "Z") {
        const bool has_sign = zone[0] == '+' || zone[0] == '-';
        zone.erase(0, 1);
        if (!has_sign || !has_form(zone, "00:00")) return false;
        if (!below(zone.substr(0, 2), 24) || !below(zone.substr(3), 60)) return false;
    }
    const size_t point = std::min(text.find('.'), text.size());
    const std::string fraction = text.substr(point);
    if (!fraction.empty() && !has_form(fraction, "." + std::string(fraction.size() - 1, '0'))) {
        return false;
    }
    text.erase(point);
    return fraction != "." && has_form(text, "00:00:00") && below(text.substr(0, 2), 24) &&
           below(text.substr(3, 2), 60) && below(text.substr(6), 60);
}

bool is_uuid(const std::string& text) {
    constexpr std::string_view kForm = "00000000-0000-0000-0000-000000000000";
    if (text.size() != kForm.size()) return false;
    for (size_t i = 0; i < kForm.size(); ++i) {
        const bool is_hex = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
        if (kForm[i] == '-' ? text[i] != '-' : !is_hex) return false;
    }
    return true;
}

bool is_ipv4(const std::string& text) {
    in_addr address{};
    return ::inet_pton(AF_INET, text.c_str(), &address) == 1;
}

bool has_format(const std::string& text, const std::string& format) {
    if (format == "date") return is_date(text);
    if (format == "time") return is_time(text);
    if (format == "uuid") return is_uuid(text);
    if (format == "ipv4") return is_ipv4(text);
    if (format != "date-time") return true;
    return text.size() > 11 && text[10] == 'T' && is_date(text.substr(0, 10)) &&
           is_time(text.substr(11));
}

// What %3C and its like in a URI stand for.
std::string decoded(const std::string& fragment) {
    std::string text;
    for (size_t i = 0; i < fragment.size(); ++i) {
        if (fragment[i] != '%') {
            text += fragment[i];
            continue;
        }
        text += static_cast<char>(std::stoi(fragment.substr(i + 1, 2), nullptr, 16));
        i += 2;
    }
    return text;
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
        const std::string pointer = decoded(schema["$ref"].get<std::string>().substr(1));
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
    if (schema.contains("const") && value != schema["const"]) return false;
    if (schema.contains("enum")) {
        return std::find(schema["enum"].begin(), schema["enum"].end(), value) !=
               schema["enum"].end();
    }
    if (schema.contains("const")) return true;
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
        if (!schema.contains(key)) continue;
        const Json& choices = schema[key];
        const auto num_valid =
            static_cast<size_t>(std::count_if(choices.begin(), choices.end(), [&](const Json& one) {
                return is_valid(value, one, root);
            }));
        if (key == std::string_view("anyOf")) return num_valid > 0;
        return num_valid == (key == std::string_view("oneOf") ? 1 : choices.size());
    }
    if (value.is_number()) {
        const auto number = value.get<double>();
        return number >= schema.value("minimum", -HUGE_VAL) &&
               number <= schema.value("maximum", HUGE_VAL) &&
               number > schema.value("exclusiveMinimum", -HUGE_VAL) &&
               number < schema.value("exclusiveMaximum", HUGE_VAL);
    }
    if (value.is_string()) {
        const auto text = value.get<std::string>();
        return is_within(code_points(text), schema, "minLength", "maxLength") &&
               has_format(text, schema.value("format", ""));
    }
    if (value.is_array()) return array_is_valid(value, schema, root);
    return !value.is_object() || object_is_valid(value, schema, root);
}

}  // namespace afd::model
