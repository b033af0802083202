// SPDX-License-Identifier: Apache-2.0
//
// afd-stand-in: what afdd starts for a worker that runs on another host. Not for people.

#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>

#include "daemon/cluster/stand_in.h"
#include "daemon/control/worker_control.h"
#include "daemon/program/logging.h"
#include "daemon/program/version.h"
#include "proto/command_words.h"
#include "proto/standard_output.h"
#include "proto/usage_error.h"

namespace afd::daemon {
namespace {

constexpr int kExitUsage = 2;

int run(int argc, char** argv) {
    StandIn::Options options;
    std::string role;
    std::string log_level = "info";
    std::string log_format = "text";
    bool has_own_group = false;
    CLI::App app("A worker of another host, for afdd. afdd starts it itself.", "afd-stand-in");
    app.set_version_flag("--version", "afd-stand-in " + std::string(kVersion));
    const std::map<std::string, control::Role> roles = {{"attention", control::ATTENTION},
                                                        {"ffn", control::FFN}};
    app.add_option("--role", role)->required()->check(CLI::IsMember({"attention", "ffn"}));
    app.add_option("--index", options.index)->required();
    app.add_option("--control-socket", options.control_socket)->required();
    app.add_option("--cluster-dir", options.cluster_directory)->required();
    app.add_option("--log-level", log_level);
    app.add_option("--log-format", log_format);
    app.add_flag("--own-process-group", has_own_group);
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        return end_parse(app, error, "afd-stand-in", kExitUsage);
    }
    options.role = roles.at(role);
    if (has_own_group) ::setpgid(0, 0);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    set_up_logging(role + "-" + std::to_string(options.index), log_level, log_format);
    EventLoop loop;
    const auto stand_in = StandIn::open(loop, options);
    if (!stand_in.ok()) {
        log::error("{}", stand_in.error().message);
        return kExitWorkerFailed;
    }
    return stand_in.value()->run();
}

}  // namespace
}  // namespace afd::daemon

int main(int argc, char** argv) {
    return afd::end_standard_output("afd-stand-in", afd::daemon::run(argc, argv));
}
