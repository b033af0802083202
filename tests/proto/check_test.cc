// SPDX-License-Identifier: Apache-2.0
//
// Goal: an assertion that fails ends the process, whoever reads its stderr. Method: a child whose
// stderr is a file, a full pipe, or one without a reader. Oracle: SIGABRT, before an alarm.

#include "proto/check.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace afd {
namespace {

struct Ends {
    int reader = -1;
    int writer = -1;
};

// Becomes stderr.
Ends pipe_for_stderr() {
    Ends ends;
    std::array<int, 2> made{};
    if (pipe(made.data()) != 0 || dup2(made[1], STDERR_FILENO) < 0) std::_Exit(99);
    ends.reader = made[0];
    ends.writer = made[1];
    alarm(20);
    return ends;
}

TEST(Check, SaysWhatFailedWithItsValues) {
    const auto fail = [](int found) { AFD_ASSERT(found == 8, "found %d", found); };
    EXPECT_EXIT(fail(7),
                ::testing::KilledBySignal(SIGABRT),
                "check_test.cc:[0-9]+: assertion failed: found == 8: found 7\n");
}

TEST(Check, EndsThoughNobodyReads) {
    const auto fail = [] {
        const Ends ends = pipe_for_stderr();
        fcntl(ends.writer, F_SETFL, O_NONBLOCK);
        const std::array<char, 4096> page{};
        while (write(ends.writer, page.data(), page.size()) > 0) continue;
        fcntl(ends.writer, F_SETFL, 0);
        AFD_ASSERT(ends.reader < 0, "reader %d", ends.reader);
    };
    EXPECT_EXIT(fail(), ::testing::KilledBySignal(SIGABRT), "");
}

TEST(Check, EndsByItsOwnSignalThoughTheReaderIsGone) {
    const auto fail = [] {
        const Ends ends = pipe_for_stderr();
        signal(SIGPIPE, SIG_DFL);
        close(ends.reader);
        AFD_ASSERT(ends.reader < 0, "reader %d", ends.reader);
    };
    EXPECT_EXIT(fail(), ::testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace afd
