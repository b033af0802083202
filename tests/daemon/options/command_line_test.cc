// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "daemon/options/config_options.h"
#include "daemon/options/help_text.h"

namespace afd::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// Goal: afdd says what is wrong with its command line in its own name and words. Oracle: the line
// of each case, and the exit code for wrong usage.
TEST(CommandLineOfAfdd, SaysWhatIsWrong) {
    const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
        {{"--ffn-workers", "1", "--ffn-workers", "2"},
         "afdd: --ffn-workers is given 2 times; give it once (see afdd --help)\n"},
        {{"--row-checksums"}, "afdd: --row-checksums needs a value (see afdd --help)\n"},
        {{"--ffn-worker", "2"},
         "afdd: unknown argument '--ffn-worker' (did you mean '--ffn-workers'"},
        {{"--check-config", "--json"},
         "afdd: --json is for --doctor; give both (see afdd --help)\n"},
    };
    const char* const environment[] = {nullptr};
    for (const auto& [arguments, line] : cases) {
        std::vector<const char*> argv = {"afdd"};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        int exit_code = -1;
        ::testing::internal::CaptureStderr();
        const auto parsed =
            parse_command_line(static_cast<int>(argv.size()), argv.data(), environment, &exit_code);
        EXPECT_THAT(::testing::internal::GetCapturedStderr(), StartsWith(line));
        EXPECT_FALSE(parsed.has_value());
        EXPECT_EQ(exit_code, 2);
    }
}

// Goal: what is used often fits a screen, and everything is there to be read. Oracle: 80 columns,
// 50 lines; every option of the table.
TEST(HelpOfAfdd, FitsAScreen) {
    for (const HelpDepth depth : {HelpDepth::kOften, HelpDepth::kAll}) {
        std::istringstream help(help_text(depth));
        int num_lines = 0;
        for (std::string line; std::getline(help, line); ++num_lines) {
            EXPECT_LE(line.size(), 80U) << line;
        }
        EXPECT_TRUE(depth == HelpDepth::kAll || num_lines <= 50) << num_lines;
    }
    const std::string all = help_text(HelpDepth::kAll);
    for (const ConfigOption& option : config_options()) {
        EXPECT_THAT(all, HasSubstr("  " + flag_name(option.name) + " "));
    }
    EXPECT_THAT(help_text(HelpDepth::kOften), HasSubstr("--help-all has every option"));
}

TEST(CommandLineOfAfdd, TakesTheDoctorsJson) {
    const char* const argv[] = {"afdd", "--doctor", "--json"};
    const char* const environment[] = {nullptr};
    int exit_code = -1;
    const auto parsed = parse_command_line(3, argv, environment, &exit_code);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_TRUE(parsed->doctor && parsed->json);
}

// Goal: "--option=" clears what a file or variable says, and takes nothing of the words behind it.
// Method: with another option, nothing and "--" behind it; and as the value of an option.
// Oracle: the values; what is behind "--" is refused as it is written.
TEST(CommandLineOfAfdd, TakesAnEmptyValueBehindTheEqualsSign) {
    const char* const environment[] = {nullptr};
    const auto parse = [&environment](std::vector<const char*> argv) {
        int exit_code = -1;
        return parse_command_line(
            static_cast<int>(argv.size()), argv.data(), environment, &exit_code);
    };
    const auto emptied = parse({"afdd", "--http-model=", "--http-keys=/k", "--http="});
    ASSERT_TRUE(emptied.has_value());
    EXPECT_THAT(emptied->sources.flags,
                ElementsAre(Pair("http", ""), Pair("http_keys", "/k"), Pair("http_model", "")));
    const auto value = parse({"afdd", "--http-model", "--http-keys=", "--http-keys", "/k"});
    ASSERT_TRUE(value.has_value());
    EXPECT_THAT(value->sources.flags,
                ElementsAre(Pair("http_keys", "/k"), Pair("http_model", "--http-keys=")));
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(parse({"afdd", "--", "--http="}).has_value());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("unknown argument"));
}

}  // namespace
}  // namespace afd::daemon
