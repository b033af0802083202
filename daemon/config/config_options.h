// SPDX-License-Identifier: Apache-2.0
#pragma once

// The table of all options: the one place where an option is described. resolved_config.cc resolves
// values from it, command_line.cc makes flags of it.

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "daemon/config/config.h"
#include "proto/status.h"

namespace afd::daemon {

// A member that is one of the option's choices, by its place among them.
struct ChoiceMember {
    void (*set)(Config& config, size_t index);
    size_t (*get)(const Config& config);
};

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

std::span<const ConfigOption> config_options();

// All option names, for "did you mean".
std::vector<std::string> option_names();

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
