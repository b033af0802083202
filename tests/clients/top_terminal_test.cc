// SPDX-License-Identifier: Apache-2.0
//
// The real `afdctl top` in a terminal of the test's, against the mock.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <sstream>

#include "tests/clients/mock_afdd.h"

namespace afd::client {
namespace {

using afd::test::MockAfdd;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kEnter = "\033[?1049h";
constexpr const char* kLeave = "\033[?7h\033[?25h\033[?1049l";
constexpr const char* kHome = "\033[H";

// `afdctl top` and the terminal that it believes to be in.
class TopTerminal {
  public:
    TopTerminal(const MockAfdd& server, uint16_t columns, uint16_t rows) {
        const winsize window = size_of(columns, rows);
        pid_ = ::forkpty(&fd_, nullptr, nullptr, &window);
        if (pid_ == 0) {
            ::setenv("XDG_RUNTIME_DIR", server.directory().c_str(), 1);
            ::execl(AFDCTL, AFDCTL, "top", nullptr);
            ::_exit(127);
        }
    }
    ~TopTerminal() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(fd_);
    }
    TopTerminal(const TopTerminal&) = delete;
    TopTerminal& operator=(const TopTerminal&) = delete;

    void resize(uint16_t columns, uint16_t rows) {
        const winsize window = size_of(columns, rows);
        ::ioctl(fd_, TIOCSWINSZ, &window);
    }
    void press(const std::string& keys) {
        ASSERT_EQ(::write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
    }
    void signal(int number) const { ::kill(pid_, number); }

    // Reads until the output has `text` behind what was waited for before; false after a minute.
    bool wait_for(const std::string& text) {
        const auto deadline = std::chrono::steady_clock::now() + seconds(60);
        while (true) {
            const size_t found = output_.find(text, seen_);
            if (found != std::string::npos) {
                seen_ = found + text.size();
                return true;
            }
            if (std::chrono::steady_clock::now() > deadline || !read_some()) return false;
        }
    }

    // Its exit status, or 128 + signal, after its end.
    int wait_exit() {
        while (read_some()) {
        }
        int status = 0;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    const std::string& output() const { return output_; }

  private:
    static winsize size_of(uint16_t columns, uint16_t rows) {
        winsize window{};
        window.ws_col = columns;
        window.ws_row = rows;
        return window;
    }

    // False at the end of the program, or after ten silent seconds.
    bool read_some() {
        pollfd item = {fd_, POLLIN, 0};
        if (::poll(&item, 1, 10'000) <= 0) return false;
        char buffer[4096];
        const ssize_t size = ::read(fd_, buffer, sizeof(buffer));
        if (size <= 0) return false;
        output_.append(buffer, static_cast<size_t>(size));
        return true;
    }

    int fd_ = -1;
    pid_t pid_ = -1;
    std::string output_;
    size_t seen_ = 0;
};

Status busy_status() {
    Status status;
    status.set_instance("default");
    status.set_state("ready");
    status.set_uptime_ms(5000);
    for (uint32_t i = 0; i < 30; ++i) {
        Worker& worker = *status.add_workers();
        worker.set_role("attention");
        worker.set_index(i);
        worker.set_pid(100 + i);
    }
    return status;
}

// The lines of the last whole picture.
std::vector<std::string> last_picture(const std::string& output) {
    const size_t end = output.rfind("\033[J");
    const size_t start = output.rfind(kHome, end);
    std::vector<std::string> lines;
    std::istringstream stream(output.substr(start + 3, end - start - 3));
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line.substr(0, line.find("\033[K")));
    }
    return lines;
}

// Goal: the picture fits the window, also after the window has changed, and the terminal is as it
// was when the program has ended. Oracle: the control sequences; the size.
TEST(AfdctlTop, DrawsIntoTheWindowFollowsItsSizeAndLeavesNoTrace) {
    MockAfdd server([](size_t, const Generate&) { return test::MockAnswer(); });
    server.set_status(busy_status());
    TopTerminal top(server, 80, 24);
    ASSERT_TRUE(top.wait_for(kEnter)) << top.output();
    ASSERT_TRUE(top.wait_for("\033[J"));
    const std::vector<std::string> first = last_picture(top.output());
    EXPECT_LE(first.size(), 24u);
    EXPECT_GT(first.size(), 20u);
    EXPECT_THAT(first.at(0), StartsWith("afd default   ready"));
    EXPECT_THAT(top.output(), HasSubstr(" more"));
    top.resize(40, 10);
    // Before it pictures of the old size may be unread: one a second, for as long as this test has
    // not had its turn.
    std::vector<std::string> small = first;
    for (int i = 0; i < 30 && small.size() > 10; ++i) {
        ASSERT_TRUE(top.wait_for("\033[J")) << top.output();
        small = last_picture(top.output());
    }
    EXPECT_LE(small.size(), 10u);
    for (const std::string& line : small) EXPECT_LE(line.size(), 40u) << line;
    top.press("q");
    EXPECT_EQ(top.wait_exit(), 0);
    EXPECT_THAT(top.output(), EndsWith(kLeave));
}

// Goal: the shell that Ctrl-Z goes back to has its terminal, and `fg` the picture. Method: nobody
// could continue the leader of a session, so the kernel does not stop it, and it goes on at once.
TEST(AfdctlTop, GivesTheTerminalBackWhileItIsStopped) {
    MockAfdd server([](size_t, const Generate&) { return test::MockAnswer(); });
    server.set_status(busy_status());
    TopTerminal top(server, 80, 24);
    ASSERT_TRUE(top.wait_for("\033[J")) << top.output();
    for (int i = 0; i < 2; ++i) {
        top.press("\x1a");
        ASSERT_TRUE(top.wait_for(kLeave)) << top.output();
        ASSERT_TRUE(top.wait_for(kEnter)) << top.output();
        ASSERT_TRUE(top.wait_for("\033[J")) << top.output();
    }
    top.press("q");
    EXPECT_EQ(top.wait_exit(), 0);
    EXPECT_THAT(top.output(), EndsWith(kLeave));
}

// Goal: whatever ends it, the terminal is as before.
TEST(AfdctlTop, RestoresTheTerminalHoweverItEnds) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        MockAfdd server([](size_t, const Generate&) { return test::MockAnswer(); });
        server.set_status(busy_status());
        TopTerminal top(server, 80, 24);
        ASSERT_TRUE(top.wait_for("\033[J")) << top.output();
        top.signal(number);
        EXPECT_EQ(top.wait_exit(), number == SIGINT ? 130 : 128 + number);
        EXPECT_THAT(top.output(), EndsWith(kLeave)) << "after signal " << number;
    }
}

// Goal: an afdd that goes away ends the picture with a message that stays on the terminal.
TEST(AfdctlTop, SaysThatAfddIsGone) {
    auto server =
        std::make_unique<MockAfdd>([](size_t, const Generate&) { return test::MockAnswer(); });
    server->set_status(busy_status());
    TopTerminal top(*server, 80, 24);
    ASSERT_TRUE(top.wait_for("\033[J")) << top.output();
    server.reset();
    EXPECT_EQ(top.wait_exit(), 5);
    const size_t left = top.output().rfind(kLeave);
    ASSERT_NE(left, std::string::npos);
    EXPECT_THAT(top.output().substr(left), HasSubstr("error: "));
}

}  // namespace
}  // namespace afd::client
