// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/log_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "daemon/loop/unique_fd.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// The two ends of something that lines go through.
struct Ends {
    UniqueFd reader;
    UniqueFd writer;
};

Ends pipe_of(int num_pages) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    EXPECT_GE(fcntl(ends[1], F_SETPIPE_SZ, num_pages * 4096), num_pages * 4096);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Ends pipe_of_one_page() {
    return pipe_of(1);
}

Ends sockets() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Ends terminal() {
    UniqueFd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_EQ(grantpt(master.get()), 0);
    EXPECT_EQ(unlockpt(master.get()), 0);
    UniqueFd slave(open(ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    return {std::move(master), std::move(slave)};
}

std::string line(size_t number) {
    return "line " + std::to_string(number) + " of a log that nobody reads\n";
}

// What lies there to be read.
std::string drained(int fd) {
    std::string text;
    EXPECT_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    std::array<char, 4096> bytes;
    for (ssize_t n = 0; (n = read(fd, bytes.data(), bytes.size())) > 0;) {
        text.append(bytes.data(), static_cast<size_t>(n));
    }
    // A terminal ends lines with two characters.
    std::erase(text, '\r');
    return text;
}

// Goal: a writer never waits, and what arrives are whole lines in their order. Method: lines that
// nobody reads until one finds no room, then all that is there is read, and one more is written.
// Oracle: the lines that were said to be written.
void expect_whole_lines(Ends ends, LogOutput& output) {
    std::string written;
    size_t number = 0;
    while (number < 100'000 && output.write(line(number))) written += line(number++);
    ASSERT_GT(number, 10u);
    ASSERT_LT(number, 100'000u) << "there is always room";
    EXPECT_FALSE(output.write(line(number)));
    std::string read = drained(ends.reader.get());
    // A line of which a part went is finished first.
    EXPECT_TRUE(output.write("after\n"));
    read += drained(ends.reader.get());
    EXPECT_EQ(read, written + "after\n");
    EXPECT_EQ(fcntl(ends.writer.get(), F_GETFL) & O_NONBLOCK, 0) << "others do not wait either";
}

TEST(LogOutput, DoesNotWaitForAPipe) {
    Ends ends = pipe_of_one_page();
    LogOutput output(ends.writer.get());
    expect_whole_lines(std::move(ends), output);
}

TEST(LogOutput, DoesNotWaitForASocket) {
    Ends ends = sockets();
    LogOutput output(ends.writer.get());
    expect_whole_lines(std::move(ends), output);
}

TEST(LogOutput, DoesNotWaitForATerminal) {
    Ends ends = terminal();
    LogOutput output(ends.writer.get());
    expect_whole_lines(std::move(ends), output);
}

// A limit of descriptors stands for whatever forbids to open something again. A pipe has room as
// long as a page is empty.
TEST(LogOutput, DoesNotWaitForWhatMayNotBeOpenedAgain) {
    for (Ends& ends : std::array{pipe_of(4), terminal()}) {
        rlimit before{};
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        LogOutput output(ends.writer.get());
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        expect_whole_lines(std::move(ends), output);
    }
}

// Somebody else has filled it.
void fill(const UniqueFd& writer) {
    ASSERT_EQ(fcntl(writer.get(), F_SETFL, O_NONBLOCK), 0);
    const std::string page(4096, 'x');
    while (write(writer.get(), page.data(), page.size()) > 0) continue;
    ASSERT_EQ(fcntl(writer.get(), F_SETFL, 0), 0);
}

// Goal: a reader who is only behind misses nothing. Method: the pipe is full when a line is
// written, and read from 2 ms later on. Oracle: the line is said to be written, in one of some
// runs: the reader may have to wait for a core longer than the writer waits for him.
TEST(LogOutput, WaitsAMomentForAReaderWhoIsBehind) {
    bool is_written = false;
    for (int run = 0; run < 20 && !is_written; ++run) {
        Ends ends = pipe_of_one_page();
        LogOutput output(ends.writer.get());
        fill(ends.writer);
        std::jthread reader([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            drained(ends.reader.get());
        });
        is_written = output.write("late\n");
    }
    EXPECT_TRUE(is_written);
}

// A page or two at a time, as a pipe gives them to whoever reads at once.
TEST(LogOutput, WaitsAMomentWithinALongLine) {
    const std::string longest = std::string(100'000, 'x') + "\n";
    std::string read;
    for (int run = 0; run < 20 && read != longest; ++run) {
        read.clear();
        Ends ends = pipe_of(4);
        LogOutput output(ends.writer.get());
        std::jthread reader([&](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                read += drained(ends.reader.get());
                sched_yield();
            }
            read += drained(ends.reader.get());
        });
        EXPECT_TRUE(output.write(longest));
    }
    EXPECT_EQ(read.size(), longest.size());
}

// Goal: the waits have a bound, however many lines find room in between. Method: a reader who takes
// a page each 5 ms, which a line waits for each time. Oracle: lines are lost long before as many
// pages as the waits of a second leave time for, in one of some runs: a writer who gets no core
// meanwhile finds room without a wait.
TEST(LogOutput, WaitsNoMoreThanItsShareOfTheTime) {
    // A page each.
    const std::string one = std::string(4095, 'x') + "\n";
    int fewest = 100;
    for (int run = 0; run < 20 && fewest >= 20; ++run) {
        Ends ends = pipe_of_one_page();
        LogOutput output(ends.writer.get());
        fill(ends.writer);
        ASSERT_EQ(fcntl(ends.reader.get(), F_SETFL, O_NONBLOCK), 0);
        std::jthread reader([&](const std::stop_token& stop) {
            std::array<char, 4096> page;
            while (!stop.stop_requested()) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                // Nothing may be there.
                if (read(ends.reader.get(), page.data(), page.size()) < 0) continue;
            }
        });
        int num_written = 0;
        while (num_written < 100 && output.write(one)) ++num_written;
        fewest = std::min(fewest, num_written);
    }
    EXPECT_LT(fewest, 20);
}

TEST(LogOutput, FinishesALineThatHadRoomForAPartOnly) {
    Ends ends = pipe_of_one_page();
    LogOutput output(ends.writer.get());
    const std::string longest(10'000, 'x');
    EXPECT_TRUE(output.write(longest + "\n"));
    EXPECT_FALSE(output.write("lost\n"));
    std::string read;
    bool is_written = false;
    for (int turn = 0; turn < 10 && !is_written; ++turn) {
        read += drained(ends.reader.get());
        is_written = output.write("after\n");
    }
    EXPECT_TRUE(is_written);
    EXPECT_EQ(read + drained(ends.reader.get()), longest + "\nafter\n");
}

TEST(LogOutput, LosesWhatNobodyWillRead) {
    ASSERT_NE(signal(SIGPIPE, SIG_IGN), SIG_ERR);
    for (const auto& make : {pipe_of_one_page, sockets}) {
        Ends ends = make();
        LogOutput output(ends.writer.get());
        ends.reader.reset();
        EXPECT_FALSE(output.write("nobody reads this\n"));
    }
}

TEST(LogOutput, GoesWhereTheDescriptorGoes) {
    Ends before = pipe_of_one_page();
    const Ends after = sockets();
    LogOutput output(before.writer.get());
    EXPECT_TRUE(output.write("before\n"));
    ASSERT_EQ(dup2(after.writer.get(), before.writer.get()), before.writer.get());
    EXPECT_TRUE(output.write("after\n"));
    EXPECT_EQ(drained(before.reader.get()), "before\n");
    EXPECT_EQ(drained(after.reader.get()), "after\n");
}

TEST(LogOutput, AppendsToAFile) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/log";
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    LogOutput output(file.get());
    EXPECT_TRUE(output.write("first\n"));
    EXPECT_TRUE(output.write("second\n"));
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(text.str(), "first\nsecond\n");
}

}  // namespace
}  // namespace afd::daemon
