// SPDX-License-Identifier: Apache-2.0
//
// afdd: the supervisor and gateway of an instance. Exit codes: exit_codes.h.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "daemon/afdd/afdd.h"
#include "daemon/config/command_line.h"
#include "daemon/config/resolved_config.h"
#include "daemon/loop/descriptor_limit.h"
#include "daemon/program/exit_codes.h"
#include "daemon/program/logging.h"

namespace afd::daemon {

namespace {

// Tests put other programs in the place of the workers.
std::string worker_directory() {
    const char* chosen = std::getenv("AFD_WORKER_DIRECTORY");
    return chosen != nullptr ? chosen : program_directory();
}

int run(int argc, char** argv) {
    int exit_code = 0;
    const std::optional<CommandLine> line = parse_command_line(argc, argv, ::environ, &exit_code);
    if (!line) return exit_code;
    const Result<ResolvedConfig> resolved = resolve_config(line->sources);
    if (!resolved.ok()) {
        std::fprintf(stderr, "afdd: %s\n", resolved.error().message.c_str());
        return static_cast<int>(ExitCode::kUsage);
    }
    const Config& config = resolved.value().config;
    if (line->check_config) {
        std::fputs(describe_config(resolved.value()).c_str(), stdout);
        return static_cast<int>(ExitCode::kOk);
    }
    set_up_logging("afdd", config.log_level, config.log_format);
    const std::string& file = resolved.value().config_file;
    // A file in the current directory counts, which who starts afdd elsewhere would not expect.
    log::info("configuration file: {}", file.empty() ? "none was found" : file);
    if (const auto done = require_descriptors(kDescriptorsMin); !done.ok()) {
        log::error("{}", done.error().message);
        return static_cast<int>(ExitCode::kUsage);
    }
    Afdd afdd(config, worker_directory());
    return static_cast<int>(afdd.run());
}

}  // namespace

}  // namespace afd::daemon

int main(int argc, char** argv) {
    return afd::daemon::run(argc, argv);
}
