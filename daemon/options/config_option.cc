// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/config_option.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "proto/did_you_mean.h"
#include "proto/typed_number.h"

namespace afd::daemon {

namespace {

std::string join(const std::vector<std::string>& words) {
    std::string joined;
    for (const std::string& word : words) joined += (joined.empty() ? "" : ", ") + word;
    return joined;
}

Error refuse(const ConfigOption& option, const std::string& text, const std::string& why) {
    return Error{Code::kInvalidArgument, std::string(option.name) + " = '" + text + "': " + why};
}

Result<> set_integer(const ConfigOption& option, const std::string& text, uint64_t& target) {
    // All of the text must be digits: no sign, no space, no suffix.
    const std::optional<uint64_t> value = whole_number(text);
    if (!value || *value < option.min || *value > option.max) {
        return refuse(option, text, "must be " + allowed_values(option));
    }
    target = *value;
    return {};
}

Result<size_t> place_among_choices(const ConfigOption& option, const std::string& text) {
    const auto& choices = option.choices;
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
    return refuse(option, text, "must be " + allowed_values(option) + did_you_mean(text, choices));
}

Result<> set_string(const ConfigOption& option, const std::string& text, std::string& target) {
    if (!option.choices.empty()) AFD_TRY(place_among_choices(option, text));
    if (option.check != nullptr) {
        const Result<> checked = option.check(text);
        if (!checked.ok()) return refuse(option, text, checked.error().message);
    }
    target = text;
    return {};
}

}  // namespace

std::string flag_name(const std::string& option) {
    std::string flag = "--" + option;
    std::replace(flag.begin() + 2, flag.end(), '_', '-');
    return flag;
}

std::string environment_name(const std::string& option) {
    std::string name = "AFD_" + option;
    for (char& c : name) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return name;
}

std::string allowed_values(const ConfigOption& option) {
    if (std::holds_alternative<bool Config::*>(option.member)) return "true or false";
    if (std::holds_alternative<uint64_t Config::*>(option.member)) {
        const std::string unit =
            option.unit[0] == '\0' ? "" : std::string(" (") + option.unit + ")";
        return "an integer from " + std::to_string(option.min) + " to " +
               std::to_string(option.max) + unit;
    }
    return option.choices.empty() ? "text" : "one of " + join(option.choices);
}

Result<> set_option(const ConfigOption& option, const std::string& text, Config& config) {
    if (const auto* member = std::get_if<uint64_t Config::*>(&option.member)) {
        return set_integer(option, text, config.*(*member));
    }
    if (const auto* member = std::get_if<std::string Config::*>(&option.member)) {
        return set_string(option, text, config.*(*member));
    }
    if (const auto* member = std::get_if<ChoiceMember>(&option.member)) {
        AFD_ASSIGN(const size_t place, place_among_choices(option, text));
        member->set(config, place);
        return {};
    }
    if (text != "true" && text != "false") {
        return refuse(option, text, "must be " + allowed_values(option));
    }
    config.*std::get<bool Config::*>(option.member) = text == "true";
    return {};
}

std::string option_literal(const ConfigOption& option, const Config& config) {
    if (const auto* member = std::get_if<uint64_t Config::*>(&option.member)) {
        return std::to_string(config.*(*member));
    }
    if (const auto* member = std::get_if<bool Config::*>(&option.member)) {
        return config.*(*member) ? "true" : "false";
    }
    if (const auto* member = std::get_if<ChoiceMember>(&option.member)) {
        return '"' + option.choices[member->get(config)] + '"';
    }
    const toml::value<std::string> value(config.*std::get<std::string Config::*>(option.member));
    std::ostringstream literal;
    // Between double quotes, whatever is in it.
    literal << toml::toml_formatter(value, toml::format_flags::none);
    return literal.str();
}

}  // namespace afd::daemon
