// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/call/field_reader.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json/json_document.h"

namespace afd::daemon {

namespace {

// As JSON Schema has it, 1.0 is an integer, too; so is one of more digits than any type has, which
// the parser makes a double.
bool is_whole(const nlohmann::json& value) {
    if (value.is_number_integer()) return true;
    return value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>();
}

// Nothing: it is beyond int64, or a double that is not exactly one number.
std::optional<int64_t> int64_of(const nlohmann::json& whole) {
    constexpr double kExactMax = int64_t{1} << 53;
    if (whole.is_number_float()) {
        const auto number = whole.get<double>();
        if (std::abs(number) > kExactMax) return std::nullopt;
        return static_cast<int64_t>(number);
    }
    const bool is_beyond =
        whole.is_number_unsigned() && whole.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    return is_beyond ? std::nullopt : std::optional(whole.get<int64_t>());
}

}  // namespace

FieldReader::FieldReader(const nlohmann::json& object, std::string path)
    : object_(object), path_(std::move(path)) {
    if (object_.is_object()) return;
    const std::string name = path_.empty() ? "" : path_.substr(0, path_.size() - 1);
    error_ = bad_field(
        name,
        fmt::format(
            "{} is {}; it must be an object", name.empty() ? "the body" : name, type_of(object_)));
}

const nlohmann::json* FieldReader::any(const char* name) {
    known_.insert(name);
    if (error_) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json* FieldReader::typed(const char* name, bool is_right, const char* type) {
    const nlohmann::json* value = any(name);
    if (value == nullptr || is_right) return value;
    fail(bad_field(path_of(name),
                   fmt::format("{} is {}; it must be {}", path_of(name), type_of(*value), type)));
    return nullptr;
}

std::optional<bool> FieldReader::boolean(const char* name) {
    const nlohmann::json* value = any(name);
    value = typed(name, value != nullptr && value->is_boolean(), "true or false");
    return value == nullptr ? std::nullopt : std::optional(value->get<bool>());
}

std::optional<int64_t> FieldReader::integer(const char* name, int64_t min, int64_t max) {
    const nlohmann::json* value = any(name);
    value = typed(name, value != nullptr && is_whole(*value), "an integer");
    if (value == nullptr) return std::nullopt;
    const std::optional<int64_t> number = int64_of(*value);
    if (number && *number >= min && *number <= max) return number;
    fail(bad_field(
        path_of(name),
        fmt::format("{} = {}: must be {} to {}", path_of(name), value->dump(), min, max)));
    return std::nullopt;
}

std::optional<uint64_t> FieldReader::bits(const char* name) {
    const nlohmann::json* value = any(name);
    value = typed(name, value != nullptr && is_whole(*value), "an integer of 64 bits");
    if (value == nullptr) return std::nullopt;
    if (value->is_number_unsigned()) return value->get<uint64_t>();
    if (const std::optional<int64_t> number = int64_of(*value)) {
        return static_cast<uint64_t>(*number);
    }
    fail(
        bad_field(path_of(name),
                  fmt::format("{} = {}: must have at most 64 bits", path_of(name), value->dump())));
    return std::nullopt;
}

std::optional<double> FieldReader::number(const char* name) {
    const nlohmann::json* value = any(name);
    value = typed(name, value != nullptr && value->is_number(), "a number");
    return value == nullptr ? std::nullopt : std::optional(value->get<double>());
}

std::optional<std::string> FieldReader::text(const char* name) {
    const nlohmann::json* value = any(name);
    value = typed(name, value != nullptr && value->is_string(), "a string");
    return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

void FieldReader::fail(ApiError error) {
    if (!error_) error_ = std::move(error);
}

std::vector<std::string> FieldReader::unknown() const {
    std::vector<std::string> names;
    if (!object_.is_object()) return names;
    for (const auto& [name, value] : object_.items()) {
        if (!known_.contains(name) && !value.is_null()) names.push_back(path_of(name));
    }
    names.insert(names.end(), unknown_within_.begin(), unknown_within_.end());
    return names;
}

void FieldReader::add_unknown(const FieldReader& inner) {
    const std::vector<std::string> names = inner.unknown();
    unknown_within_.insert(unknown_within_.end(), names.begin(), names.end());
}

std::string_view type_of(const nlohmann::json& value) {
    switch (value.type()) {
        case nlohmann::json::value_t::null:
            return "null";
        case nlohmann::json::value_t::boolean:
            return "true or false";
        case nlohmann::json::value_t::number_integer:
        case nlohmann::json::value_t::number_unsigned:
            return "an integer";
        case nlohmann::json::value_t::number_float:
            return "a number with a fraction";
        case nlohmann::json::value_t::string:
            return "a string";
        case nlohmann::json::value_t::array:
            return "an array";
        case nlohmann::json::value_t::object:
            return "an object";
        case nlohmann::json::value_t::binary:
        case nlohmann::json::value_t::discarded:
            break;
    }
    return "nothing";
}

ApiResult<nlohmann::json> parse_body(std::string_view body) {
    if (body.empty()) {
        return ApiError{.status = 400,
                        .code = "invalid_json",
                        .message = "the body is empty; it must be a JSON object"};
    }
    Result<nlohmann::json> json = model::parse_json_text(body, "the body");
    if (!json.ok()) {
        return ApiError{.status = 400, .code = "invalid_json", .message = json.error().message};
    }
    if (!json.value().is_object()) {
        return ApiError{.status = 400,
                        .code = "invalid_json",
                        .message = fmt::format("the body is {}; it must be a JSON object",
                                               type_of(json.value()))};
    }
    return std::move(json).value();
}

}  // namespace afd::daemon
