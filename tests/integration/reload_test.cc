// SPDX-License-Identifier: Apache-2.0
//
// What SIGHUP changes of an instance that runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// With the permissions that afdd wants of a file of keys.
void write_config(const std::string& file, const std::string& text) {
    std::ofstream(file) << text;
    std::filesystem::permissions(file, std::filesystem::perms(0600));
}

// Goal: SIGHUP changes the log level of afdd, of its workers and of those that come later, and
// nothing else; a file that is wrong changes nothing.
TEST(Reload, SighupTakesTheLogLevelOfTheFile) {
    const std::string file = make_directory() + "/afd.toml";
    write_config(file, "log_level = \"info\"\n");
    Instance instance({"--config", file});
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    EXPECT_THAT(instance.log(), Not(HasSubstr("request 1: ")));

    write_config(file, "log_level = \"debug\"\nmax_queue = 1\n");
    instance.signal(SIGHUP);
    instance.wait_for_log("log_level is debug; every other option stays");
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    instance.wait_for_log("request 2: accepted from ");
    instance.wait_for_log("request 2: goes to attention worker 0");
    instance.wait_for_log("request 2: finished after ");

    write_config(file, "log_level = \"loud\"\n");
    instance.signal(SIGHUP);
    instance.wait_for_log("nothing changes: ");
    instance.wait_for_log("loud");
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    instance.wait_for_log("request 3: finished after ");
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: a key that is taken out of the file serves nobody from the SIGHUP on, and a new one does.
TEST(Reload, SighupTakesTheApiKeysOfTheFile) {
    const std::string first = "first-key-of-the-file";
    const std::string second = "second-key-of-the-file";
    const std::string file = make_directory() + "/keys";
    write_config(file, first + "\n");
    Instance instance({"--http", "127.0.0.1:0", "--http-keys", file});
    instance.wait_ready();
    const std::string log = instance.log();
    const std::regex address("http://127\\.0\\.0\\.1:[0-9]+");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(log, found, address)) << log;
    const std::string url = found[0].str() + "/v1/models";
    const auto status_with = [&](const std::string& key) {
        const Outcome asked = run_program({"/usr/bin/curl",
                                           "-s",
                                           "-o",
                                           "/dev/null",
                                           "-w",
                                           "%{http_code}",
                                           "-H",
                                           "Authorization: Bearer " + key,
                                           url},
                                          instance.runtime_directory());
        return asked.output;
    };
    EXPECT_EQ(status_with(first), "200");
    EXPECT_EQ(status_with(second), "401");
    write_config(file, second + "\n");
    EXPECT_EQ(status_with(first), "200");
    instance.signal(SIGHUP);
    instance.wait_for_log("API keys were read again");
    EXPECT_EQ(status_with(first), "401");
    EXPECT_EQ(status_with(second), "200");
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
