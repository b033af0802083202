// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/own_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>

#include "proto/failure.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

Result<> accept_any(const struct stat&) {
    return {};
}

Error with_number(int error) {
    return unavailable("errno {}", with(error));
}

// Goal: no file is read in the place of the one that was judged. Method: another takes its name
// between the two.
TEST(OwnFile, ReadsWhatWasJudged) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.write("keys", "mine");
    const std::string other = directory.write("other", "of somebody else");
    off_t judged_bytes = 0;
    const auto text = read_own_file(path,
                                    100,
                                    {.check = [&](const struct stat& status) -> Result<> {
                                         judged_bytes = status.st_size;
                                         EXPECT_EQ(std::rename(other.c_str(), path.c_str()), 0);
                                         return {};
                                     },
                                     .unreadable = with_number});
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(text.value(), "mine");
    EXPECT_EQ(judged_bytes, 4);
}

TEST(OwnFile, ReadsNoMoreThanItMay) {
    const test::TemporaryDirectory directory;
    const OwnFileRules rules = {.check = accept_any, .unreadable = with_number};
    const std::string path = directory.write("file", "12345678");
    EXPECT_EQ(read_own_file(path, 100, rules).value(), "12345678");
    EXPECT_EQ(read_own_file(path, 8, rules).value(), "12345678");
    EXPECT_EQ(read_own_file(path, 7, rules).value(), "1234567");
}

TEST(OwnFile, FailsAsItsCallerSaysIt) {
    const test::TemporaryDirectory directory;
    const auto refuse = [](const struct stat&) -> Result<> {
        return permission_denied("it is not mine");
    };
    const OwnFileRules rules = {.check = refuse, .unreadable = with_number};
    EXPECT_EQ(read_own_file(directory.write("file", "bytes"), 100, rules).error().message,
              "it is not mine");
    EXPECT_EQ(read_own_file(directory.path() + "/none", 100, rules).error().message,
              fmt::format("errno {}", ENOENT));
    // A directory can be opened, and not read.
    EXPECT_EQ(read_own_file(directory.path(), 100, {.check = accept_any, .unreadable = with_number})
                  .error()
                  .message,
              fmt::format("errno {}", EISDIR));
}

}  // namespace
}  // namespace afd::daemon
