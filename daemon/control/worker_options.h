// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of both worker programs. Everything else a worker needs comes from afdd in the
// Welcome, so that a worker started by hand is configured like a spawned one:
//
//   afd-ffn-worker --instance demo --index 0

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace afd::daemon {

struct WorkerOptions {
    std::string instance;  // The default one, if not given.
    uint32_t index = 0;
    std::string control_socket;  // Of the instance, if not given.
    std::string log_level = "info";
    std::string log_format = "text";
    bool own_process_group = false;
};

// Parses argv. On --help, --version or an error it prints, and *exit_code is what main returns.
// `role`: "attention" (index is the session) or "ffn" (index is the rank).
std::optional<WorkerOptions> parse_worker_options(int argc,
                                                  char** argv,
                                                  const std::string& role,
                                                  int* exit_code);

// What afdd starts. `role`: as above.
std::string worker_program_name(const std::string& role);
// With these arguments: the options as parse_worker_options() reads them again. An instance that is
// empty is left out: a stand-in has the other options, and knows none.
std::vector<std::string> arguments_of(const WorkerOptions& options);

}  // namespace afd::daemon
