// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/tokenizer_keys.h"

#include <nlohmann/json.hpp>

#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {

const nlohmann::json& json_member(const nlohmann::json& object, const char* key) {
    static const nlohmann::json kNothing;
    if (!object.is_object()) return kNothing;
    const auto at = object.find(key);
    return at == object.end() ? kNothing : *at;
}

std::string json_string(const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : std::string();
}

std::string json_shown(const nlohmann::json& value) {
    constexpr size_t kShownMax = 120;
    const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (text.size() <= kShownMax) return text;
    return std::string(start_of(text, kShownMax)) + "...";
}

Error unserved_key(const std::string& origin,
                   const std::string& key,
                   const nlohmann::json& value,
                   const std::string& supported) {
    return unimplemented("{}: {} is {}; supported: {}",
                         with(origin, key, json_shown(value), supported));
}

Error broken_file(const std::string& origin, const std::string& what) {
    return data_loss("{}: {}", with(origin, what));
}

Result<std::string> metaspace_sign(const nlohmann::json& step, const std::string& origin) {
    std::string sign = json_string(json_member(step, "replacement"));
    if (!sign.empty() && next_character(sign).size == sign.size()) return sign;
    return broken_file(
        origin + ": Metaspace",
        "replacement is missing, empty or more than the one character that is needed");
}

Result<bool> json_flag(const nlohmann::json& object,
                       const char* key,
                       bool fallback,
                       const std::string& origin) {
    const nlohmann::json& value = json_member(object, key);
    if (value.is_null()) return fallback;
    if (value.is_boolean()) return value.get<bool>();
    return broken_file(origin,
                       fmt::format("{} is {}; true or false is needed", key, json_shown(value)));
}

}  // namespace afd::model
