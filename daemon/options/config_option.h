// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConfigOption: one option of afdd: its name, type, default, bounds and meaning; how a text becomes
// its value and how a value is written. Which options there are is config_options.h.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/options/choice_member.h"
#include "proto/status.h"

namespace afd::daemon {

using OptionMember =
    std::variant<std::string Config::*, uint64_t Config::*, bool Config::*, ChoiceMember>;

struct ConfigOption {
    const char* name;  // snake_case: the TOML key.
    OptionMember member;
    const char* default_text;
    const char* unit;  // "" for none.
    const char* description;
    // Integers: bounds, inclusive.
    uint64_t min = 0;
    uint64_t max = 0;
    // Choices, and strings of which only some are allowed; empty: any that `check` takes.
    std::vector<std::string> choices = {};
    Result<> (*check)(const std::string& value) = nullptr;
};

std::string flag_name(const std::string& option);         // ffn_workers -> --ffn-workers
std::string environment_name(const std::string& option);  // ffn_workers -> AFD_FFN_WORKERS

// "an integer from 1 to 64 (workers)", "one of any, gather, all": what the option takes.
std::string allowed_values(const ConfigOption& option);

// Parses and validates `text`, and stores it into `config`.
// Errors: kInvalidArgument naming the option, the value and what is allowed.
Result<> set_option(const ConfigOption& option, const std::string& text, Config& config);

// The value of the option as a TOML literal.
std::string option_literal(const ConfigOption& option, const Config& config);

}  // namespace afd::daemon
