// SPDX-License-Identifier: Apache-2.0
#pragma once

// The table of all options. resolved_config.cc resolves values from it, command_line.cc makes flags
// of it. The options themselves are described by topic (option_topics.h).

#include <span>
#include <string>
#include <vector>

#include "daemon/options/config_option.h"

namespace afd::daemon {

struct OptionTopic {
    const char* title;
    std::vector<ConfigOption> options;
};

// In the order in which --help-all and --check-config show them.
std::span<const OptionTopic> config_topics();

// The options of all topics, in that order.
std::span<const ConfigOption> config_options();

// All option names, for "did you mean".
std::vector<std::string> option_names();

}  // namespace afd::daemon
