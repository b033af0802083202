// SPDX-License-Identifier: Apache-2.0
#include "proto/standard_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace afd {
namespace {

// Runs `print` in a child whose standard output is `path`; the child says on standard error what
// finish_standard_output() finds.
template <typename Print>
[[noreturn]] void print_to(const char* path, const Print& print) {
    dup2(open(path, O_WRONLY), STDOUT_FILENO);
    print();
    std::fprintf(stderr, "found '%s'", finish_standard_output().c_str());
    std::_Exit(0);
}

TEST(StandardOutput, WhatGotThroughIsNoLoss) {
    EXPECT_EXIT(print_to("/dev/null",
                         [] {
                             std::printf("one");
                             std::cout << "two";
                         }),
                testing::ExitedWithCode(0),
                "found ''");
}

TEST(StandardOutput, SaysWhyTheLastOfItIsLost) {
    EXPECT_EXIT(print_to("/dev/full", [] { std::printf("one"); }),
                testing::ExitedWithCode(0),
                "found 'cannot write standard output: No space left on device'");
}

// Goal: no reason is made up. Method: the output is lost early, and another call fails afterwards.
TEST(StandardOutput, SaysNoReasonOfAnEarlierLoss) {
    EXPECT_EXIT(print_to("/dev/full",
                         [] {
                             std::printf("one");
                             std::fflush(stdout);
                             errno = EACCES;
                         }),
                testing::ExitedWithCode(0),
                "found 'cannot write standard output: not all of it got through'");
}

}  // namespace
}  // namespace afd
