// SPDX-License-Identifier: Apache-2.0
#include "model/json/key_reader.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/unicode/utf8.h"

namespace afd::model {

using Json = nlohmann::json;

namespace {

// The value as a message has it. Some objects of a file are as long as the rest of it.
std::string shown_value(const Json& value) {
    constexpr size_t kShownMax = 400;
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() <= kShownMax) return text;
    return std::string(start_of(text, kShownMax)) + "...";
}

}  // namespace

KeyReader::KeyReader(const Json& object, std::string origin)
    : object_(object), origin_(std::move(origin)) {}

const Json* KeyReader::find(const std::string& key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
}

bool KeyReader::is_null(const std::string& key) const {
    const auto at = object_.find(key);
    return at != object_.end() && at->is_null();
}

uint32_t KeyReader::count(const char* key,
                          uint32_t low,
                          uint32_t high,
                          std::optional<uint32_t> fallback) {
    const Json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    // No conversion: 4.0 or "4" is a mistake of the file.
    if (value != nullptr && value->is_number_unsigned()) {
        const uint64_t number = value->get<uint64_t>();
        if (number >= low && number <= high) return static_cast<uint32_t>(number);
    }
    refuse(Code::kInvalidArgument, key, fmt::format("an integer in [{}, {}]", low, high));
    return low;
}

double KeyReader::positive(const char* key, std::optional<double> fallback) {
    const Json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value != nullptr && value->is_number()) {
        const double number = value->get<double>();
        if (number > 0 && std::isfinite(number)) return number;
    }
    refuse(Code::kInvalidArgument, key, "a finite number above 0");
    return 1;
}

std::vector<double> KeyReader::positives(const char* key, size_t size) {
    const Json* value = find(key);
    const bool is_list = value != nullptr && value->is_array() && value->size() == size;
    std::vector<double> out;
    for (const Json& entry : is_list ? *value : Json::array()) {
        if (!entry.is_number()) break;
        const double number = entry.get<double>();
        if (number > 0 && std::isfinite(number)) out.push_back(number);
    }
    if (is_list && out.size() == size) return out;
    refuse(Code::kInvalidArgument, key, fmt::format("a list of {} finite numbers above 0", size));
    return std::vector<double>(size, 1.0);
}

double KeyReader::not_negative(const char* key, double fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_number() && value->get<double>() == 0) return 0;
    return positive(key, std::nullopt);
}

bool KeyReader::flag(const char* key, bool fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    refuse(Code::kInvalidArgument, key, "true or false");
    return fallback;
}

std::vector<uint32_t> KeyReader::indices(const char* key, uint32_t end) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    std::vector<uint32_t> out;
    for (const Json& entry : value->is_array() ? *value : Json::array({*value})) {
        // More of them would repeat some; who uses the list may look through it for every index.
        if (value->is_array() && entry.is_number_unsigned() && entry.get<uint64_t>() < end &&
            out.size() < end) {
            out.push_back(static_cast<uint32_t>(entry.get<uint64_t>()));
            continue;
        }
        refuse(Code::kInvalidArgument,
               key,
               fmt::format("a list of at most {} integers below {}", end, end));
        return {};
    }
    return out;
}

std::string KeyReader::choice(const char* key,
                              std::string fallback,
                              std::initializer_list<const char*> supported,
                              const char* remedy) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    std::string list;
    for (const char* name : supported) {
        if (value->is_string() && value->get_ref<const std::string&>() == name) return name;
        list += std::string(list.empty() ? "" : ", ") + '"' + name + '"';
    }
    refuse(Code::kUnimplemented, key, list + remedy);
    return fallback;
}

void KeyReader::refuse(Code code, const std::string& key, const std::string& supported) {
    // The first problem is reported; what follows may be its consequence. Readers go on with a
    // harmless value and ask failed() at the end.
    if (problem_) return;
    const Json* value = find(key);
    const std::string text = value == nullptr ? "missing" : shown_value(*value);
    problem_ = Error{code, origin_ + ": " + key + " is " + text + "; supported: " + supported};
}

void KeyReader::refuse_if_given(const char* key, const char* supported) {
    if (find(key) != nullptr) refuse(Code::kUnimplemented, key, supported);
}

void KeyReader::refuse_unless(const char* key, bool served) {
    if (flag(key, served) != served) refuse(Code::kUnimplemented, key, served ? "true" : "false");
}

void KeyReader::adopt(const KeyReader& inner) {
    if (!problem_) problem_ = inner.problem_;
}

}  // namespace afd::model
