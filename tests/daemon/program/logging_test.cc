// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/logging.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

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

// Goal: a file at the limit of its size is an error for whoever writes it, and ends no process.
// Oracle: the error.
TEST(Logging, AFileAtItsLimitEndsNobody) {
    const test::TemporaryDirectory directory;
    const auto error_of_write = [&] {
        ::signal(SIGXFSZ, SIG_DFL);
        set_up_logging("test", "warn", "text");
        const rlimit limit{1, 1};
        const int fd = ::open(directory.path("file").c_str(), O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(99);
        std::_Exit(::pwrite(fd, "x", 1, 1) < 0 ? errno : 0);
    };
    EXPECT_EXIT(error_of_write(), ::testing::ExitedWithCode(EFBIG), "");
}

// Goal: levels are a column, under the names that the configuration has for them.
TEST(Logging, CallsLevelsAsTheConfigurationDoes) {
    const auto write = [] {
        set_up_logging("ffn-0", "debug", "text");
        log::debug("one");
        log::info("two");
        log::warn("three");
        log::error("four");
        std::_Exit(0);
    };
    EXPECT_EXIT(
        write(),
        ::testing::ExitedWithCode(0),
        " debug ffn-0: one\n.* info  ffn-0: two\n.* warn  ffn-0: three\n.* error ffn-0: four");
}

TEST(Logging, NamesTheProcessWhileThereIsAnotherOfItsName) {
    const auto write = [] {
        set_up_logging("afdd", "info", "text");
        show_pid_in_log(true);
        log::info("one");
        show_pid_in_log(false);
        log::info("two");
        std::_Exit(0);
    };
    EXPECT_EXIT(write(),
                ::testing::ExitedWithCode(0),
                " info  afdd\\[[0-9]+\\]: one\n.* info  afdd: two\n");
}

// Goal: a log that nobody reads holds nobody up, and says afterwards what is missing. Method: lines
// of a request to a pipe of one page, which is read at last, and one line more. Oracle: the lines
// that arrived and those that are said to be lost are all of them; each is a JSON object, and the
// one of the loss names no request.
TEST(Logging, SaysHowManyLinesAreLost) {
    const auto num_wrong = [] {
        int ends[2];
        if (pipe(ends) != 0 || fcntl(ends[1], F_SETPIPE_SZ, 4096) < 0) std::_Exit(99);
        // The reader's end alone: it is the writer who must not wait.
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        dup2(ends[1], STDERR_FILENO);
        set_up_logging("test", "info", "json");
        constexpr int kLines = 500;
        for (int i = 0; i < kLines; ++i) log::of_request(7, log::Level::kInfo, "line {}", i);
        const auto read_lines = [&] {
            char bytes[16384];
            const ssize_t n = read(ends[0], bytes, sizeof bytes);
            std::stringstream text(std::string(bytes, n < 0 ? 0 : static_cast<size_t>(n)));
            std::vector<nlohmann::json> lines;
            for (std::string line; std::getline(text, line);)
                lines.push_back(nlohmann::json::parse(line, nullptr, false));
            return lines;
        };
        std::vector<nlohmann::json> lines = read_lines();
        log::of_request(7, log::Level::kInfo, "after");
        const std::vector<nlohmann::json> rest = read_lines();
        lines.insert(lines.end(), rest.begin(), rest.end());
        if (lines.size() < 2) std::_Exit(98);
        const int num_written = static_cast<int>(lines.size()) - 2;
        int wrong = 0;
        for (int i = 0; i < num_written; ++i)
            wrong += lines[i].value("message", "") != fmt::format("line {}", i);
        const nlohmann::json& lost = lines[lines.size() - 2];
        wrong +=
            lost.value("message", "") !=
            fmt::format("no room for lines of this log, which are lost: {}", kLines - num_written);
        wrong += lost.value("level", "") != "warning" || lost.contains("request");
        wrong += lines.back().value("message", "") != "after" || lines.back()["request"] != 7;
        std::_Exit(std::min(wrong, 97));
    };
    EXPECT_EXIT(num_wrong(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace afd::daemon
