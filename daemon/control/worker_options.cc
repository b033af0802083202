// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/worker_options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "daemon/program/version.h"
#include "proto/command_words.h"
#include "proto/socket_path.h"
#include "proto/usage_error.h"

namespace afd::daemon {

std::optional<WorkerOptions> parse_worker_options(int argc,
                                                  char** argv,
                                                  const std::string& role,
                                                  int* exit_code) {
    WorkerOptions options;
    options.instance = std::string(kDefaultInstance);
    const std::string program = worker_program_name(role);
    CLI::App app("One " + role +
                     " worker of a running afdd. afdd starts its workers itself; by hand only "
                     "with spawn = false.\n\nExample:\n  " +
                     program + " --instance demo --index 0\n",
                 program);
    app.set_version_flag("--version", program + " " + std::string(kVersion));
    app.add_option("--instance", options.instance, "Instance name of the afdd to join")
        ->capture_default_str();
    app.add_option("--index",
                   options.index,
                   role == "ffn" ? "Rank of this FFN worker" : "Session of this attention worker")
        ->capture_default_str();
    app.add_option("--control-socket",
                   options.control_socket,
                   "Control socket of afdd (default: the instance's)");
    app.add_option("--log-level", options.log_level)
        ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
        ->capture_default_str();
    app.add_option("--log-format", options.log_format)
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
    app.add_flag("--own-process-group",
                 options.own_process_group,
                 "As afdd starts it: a Ctrl-C for afdd is not for its workers");
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        *exit_code = end_parse(app, error, program, 2);
        return std::nullopt;
    }
    if (options.control_socket.empty()) {
        const Result<InstancePaths> paths = instance_paths(options.instance);
        if (!paths.ok()) {
            std::fprintf(stderr, "%s: %s\n", program.c_str(), paths.error().message.c_str());
            *exit_code = 2;
            return std::nullopt;
        }
        options.control_socket = paths.value().control_socket;
    }
    return options;
}

std::string worker_program_name(const std::string& role) {
    return "afd-" + role + "-worker";
}

std::vector<std::string> arguments_of(const WorkerOptions& options) {
    std::vector<std::string> arguments;
    if (!options.instance.empty()) arguments = {"--instance", options.instance};
    arguments.insert(arguments.end(),
                     {"--index",
                      std::to_string(options.index),
                      "--control-socket",
                      options.control_socket,
                      "--log-level",
                      options.log_level,
                      "--log-format",
                      options.log_format});
    if (options.own_process_group) arguments.emplace_back("--own-process-group");
    return arguments;
}

}  // namespace afd::daemon
