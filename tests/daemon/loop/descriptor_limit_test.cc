// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "daemon/loop/unique_fd.h"

namespace afd::daemon {
namespace {

// Goal: too few descriptors are an error that says what to do, and no abort later. Method: a child
// with a limit, which it cannot raise again. Oracle: its exit status.
TEST(DescriptorLimit, TooFewAreRefusedWithTheLimit) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const rlimit limit{9, 9};
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
        const Result<> checked = require_descriptors(kDescriptorsMin);
        if (checked.ok() || checked.error().code != Code::kResourceExhausted) ::_exit(2);
        const std::string& text = checked.error().message;
        if (text.find("limit 9") == std::string::npos) ::_exit(3);
        if (text.find("at least 32 are needed: raise the limit") == std::string::npos) ::_exit(4);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(DescriptorLimit, WhatWasTriedIsClosedAgain) {
    for (int i = 0; i < 1000; ++i) {
        const Result<> checked = require_descriptors(kDescriptorsMin);
        ASSERT_TRUE(checked.ok()) << checked.error().message;
    }
}

// Numbers have holes where files were closed.
TEST(DescriptorLimit, WhatIsOpenIsCountedAndNotTheHighestNumber) {
    const size_t before = num_free_descriptors();
    ASSERT_GT(before, 100U);
    std::vector<UniqueFd> opened;
    for (int i = 0; i < 100; ++i) opened.emplace_back(::eventfd(0, EFD_CLOEXEC));
    opened.front().reset();
    EXPECT_EQ(num_free_descriptors(), before - 99);
    ASSERT_TRUE(num_open_descriptors().has_value());
    const size_t num_open = *num_open_descriptors();
    opened.clear();
    EXPECT_EQ(*num_open_descriptors(), num_open - 99);
}

}  // namespace
}  // namespace afd::daemon
