// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace afd::tools {
namespace {

// Goal: hours of work do not end because nobody can be told of them any more. Method: standard
// error is a terminal, where a line is due five times a second, and the terminal goes away.
[[noreturn]] void show_to_nobody() {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (grantpt(terminal) != 0 || unlockpt(terminal) != 0) std::_Exit(1);
    dup2(open(ptsname(terminal), O_RDWR | O_NOCTTY), STDERR_FILENO);
    if (isatty(STDERR_FILENO) != 1) std::_Exit(2);
    Progress progress("work");
    close(terminal);
    progress.show(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    progress.show(0.5);
    // The line could not be written, else this test shows nothing.
    std::_Exit(std::ferror(stderr) != 0 ? 0 : 3);
}

TEST(Progress, GoesOnWithoutItsTerminal) {
    EXPECT_EXIT(show_to_nobody(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace afd::tools
