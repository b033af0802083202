// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/logging.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// A zone file (TZif) of one zone: nine hours ahead of UTC, "JST", always.
std::string zone_file() {
    std::string bytes = "TZif" + std::string(16, '\0');
    for (const char count : {'\0', '\0', '\0', '\0', '\1', '\4'})
        bytes += std::string(3, '\0') + count;
    bytes += std::string("\x00\x00\x7e\x90\x00\x00", 6);
    return bytes + std::string("JST\0", 4);
}

// Goal: lines have the time of the machine's zone, although a worker may open no file later.
// Method: a zone file that is gone once the log is set up. Oracle: the hour of 1970-01-01 00:00
// UTC in that zone, which is 9.
TEST(Logging, KnowsItsTimeZoneFromTheStart) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/zone";
    std::ofstream(path, std::ios::binary) << zone_file();
    const auto hour_after_set_up = [&] {
        ::setenv("TZ", (":" + path).c_str(), 1);
        set_up_logging("test", "warn", "text");
        std::filesystem::remove(path);
        const time_t epoch = 0;
        struct tm local {};
        ::localtime_r(&epoch, &local);
        std::_Exit(local.tm_hour);
    };
    EXPECT_EXIT(hour_after_set_up(), ::testing::ExitedWithCode(9), "");
}

}  // namespace
}  // namespace afd::daemon
