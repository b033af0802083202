// SPDX-License-Identifier: Apache-2.0
#pragma once

// What afdd --help and --help-all print: the options from their table (config_options.h), in lines
// of at most 80 columns.

#include <string>

namespace afd::daemon {

enum class HelpDepth {
    kOften,  // What fits a screen.
    kAll,    // Every option by topic, the signals, the exit codes.
};

std::string help_text(HelpDepth depth);

}  // namespace afd::daemon
