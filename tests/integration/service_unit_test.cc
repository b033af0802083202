// SPDX-License-Identifier: Apache-2.0
//
// The systemd units in deploy/, and what afdd says of itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "daemon/program/exit_codes.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

// Of a unit in deploy/: of a setting that comes more than once, all values.
std::multimap<std::string, std::string> read_unit(const std::string& name) {
    std::ifstream file(AFD_DEMO_MODEL "/../deploy/" + name);
    std::multimap<std::string, std::string> settings;
    for (std::string line; std::getline(file, line);) {
        const size_t equals = line.find('=');
        if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
        settings.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
    return settings;
}

// The exit codes behind which a unit must not start afdd again, as a unit has them.
std::string final_exit_codes() {
    std::string codes;
    for (const daemon::ExitCodeText& entry : daemon::kExitCodes) {
        if (entry.is_to_restart || entry.code == daemon::ExitCode::kOk) continue;
        codes += (codes.empty() ? "" : " ") + std::to_string(static_cast<int>(entry.code));
    }
    return codes;
}

// Goal: the unit and afdd agree. Oracle: the defaults and exit codes of afdd's own --help-all.
TEST(Service, TheUnitFitsAfdd) {
    const auto all = read_unit("afdd.service");
    std::map<std::string, std::string> settings(all.begin(), all.end());
    // Which is in none of systemd's sets, and without which a worker would be killed at its start.
    EXPECT_THAT(all, Contains(Pair("SystemCallFilter", "seccomp")));
    // An address that is not there yet cannot be listened on, which is not tried again.
    EXPECT_THAT(settings["After"], HasSubstr("network-online.target"));
    EXPECT_EQ(settings["Wants"], "network-online.target");
    // UCX asks the kernel over it which devices there are.
    EXPECT_THAT(settings["RestrictAddressFamilies"], HasSubstr("AF_NETLINK"));
    EXPECT_EQ(settings["Type"], "notify");
    EXPECT_EQ(settings["KillMode"], "mixed");
    EXPECT_GT(std::stoi(settings["WatchdogSec"]), 1);
    const std::string help = run_program({program("afdd"), "--help-all"}, make_directory()).output;
    const std::regex drain("--drain-timeout-ms[^\\[]*\\[([0-9]+) ms\\]");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(help, found, drain)) << help;
    EXPECT_GT(std::stoi(settings["TimeoutStopSec"]) * 1000, std::stoi(found[1]) + 3000);
    EXPECT_EQ(settings["RestartPreventExitStatus"], final_exit_codes());
    EXPECT_THAT(settings["RestartPreventExitStatus"], HasSubstr("6"))
        << "a drain that took too long";
    // The old process of an upgrade is believed when the new one has died.
    EXPECT_EQ(settings["NotifyAccess"], "all");
    EXPECT_THAT(help, HasSubstr("  2  the command line, environment, configuration file"));
    EXPECT_THAT(help, HasSubstr("  3  the model directory is missing"));
    EXPECT_EQ(settings["ExecStart"], "/usr/bin/afdd --config /etc/afd/afd.toml");
    // Who asks the service is told to be its user, and where the socket is.
    EXPECT_EQ(settings["RuntimeDirectoryMode"], "0700");
    EXPECT_EQ(settings["RuntimeDirectoryPreserve"], "yes") << "shared with afdd-host.service";
    EXPECT_EQ(settings["Environment"].find("XDG_RUNTIME_DIR=/run "), 0u);
    const std::string client = "sudo -u " + settings["User"] + " env XDG_RUNTIME_DIR=/run afdctl ";
    for (const char* file : {"/../deploy/afdd.service", "/../docs/operations.md"}) {
        std::ifstream stream(std::string(AFD_DEMO_MODEL) + file);
        const std::string text{std::istreambuf_iterator<char>(stream),
                               std::istreambuf_iterator<char>()};
        EXPECT_THAT(text, HasSubstr(client)) << file;
    }
}

// Goal: so do the unit of a host that joins and the configuration in its comment. Oracle: afdd's
// own judgement of that, and the 3 s that it gives its workers to end.
TEST(Service, TheUnitOfAHostFitsAfdd) {
    const auto all = read_unit("afdd-host.service");
    std::map<std::string, std::string> settings(all.begin(), all.end());
    // Workers over UCX filter themselves, too.
    EXPECT_THAT(all, Contains(Pair("SystemCallFilter", "seccomp")));
    EXPECT_EQ(settings["Type"], "notify");
    EXPECT_EQ(settings["KillMode"], "mixed");
    EXPECT_EQ(settings["RuntimeDirectoryPreserve"], "yes") << "shared with afdd.service";
    EXPECT_GT(std::stoi(settings["TimeoutStopSec"]), 3);
    EXPECT_EQ(settings["RestartPreventExitStatus"], final_exit_codes());
    EXPECT_GT(std::stoi(settings["WatchdogSec"]), 1);
    EXPECT_EQ(settings["ExecReload"], "/bin/kill -HUP $MAINPID");
    EXPECT_EQ(settings["ExecStart"], "/usr/bin/afdd --config /etc/afd/host.toml");
    EXPECT_THAT(settings["RestrictAddressFamilies"], HasSubstr("AF_NETLINK"));

    std::ifstream unit(AFD_DEMO_MODEL "/../deploy/afdd-host.service");
    std::string options;
    for (std::string line; std::getline(unit, line);) {
        if (line.starts_with("#   ")) options += line.substr(4) + "\n";
    }
    options =
        std::regex_replace(options, std::regex("model = .*"), "model = \"" AFD_DEMO_MODEL "\"");
    const std::string directory = make_directory();
    const Outcome made = run_program(
        {program("afdctl"), "cluster", "init", directory + "/cluster", "--host", "b"}, directory);
    ASSERT_EQ(made.exit_status, 0) << made.output;
    options = std::regex_replace(options, std::regex("/etc/afd/cluster"), directory + "/cluster");
    const std::string file = directory + "/host.toml";
    std::ofstream(file) << options;
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    const Outcome checked =
        run_program({program("afdd"), "--config", file, "--check-config"}, make_directory());
    EXPECT_EQ(checked.exit_status, 0) << checked.output;
    EXPECT_THAT(checked.output, HasSubstr("join = \"leader.example.org:7411\""));
}

}  // namespace
}  // namespace afd::test
