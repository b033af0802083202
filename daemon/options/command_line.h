// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of afdd: every option of config_options.h as a flag, and --config, --demo,
// --slurm, --check-config, --doctor.

#include <map>
#include <optional>
#include <string>

#include "daemon/options/resolved_config.h"

namespace afd::daemon {

struct CommandLine {
    ConfigSources sources;
    bool slurm = false;  // The caller fills sources.slurm.
    bool check_config = false;
    bool doctor = false;
    bool json = false;  // Of the doctor.
};

// Parses argv and the environment. On --help, --version or an error it prints, and *exit_code is
// what main returns.
std::optional<CommandLine> parse_command_line(int argc,
                                              const char* const* argv,
                                              const char* const* environment,
                                              int* exit_code);

// Directory of the running program.
std::string program_directory();

// Where the demo model is: installed beside the program, or in the source tree. Empty if nowhere.
std::string find_demo_model(const std::string& program_directory);

}  // namespace afd::daemon
