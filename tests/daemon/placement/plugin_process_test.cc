// SPDX-License-Identifier: Apache-2.0
//
// Goal: whatever a user's library does while it is asked, this process gets an answer or an error
// in time, and is the same behind it.
#include "daemon/placement/plugin_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace afd::daemon {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::function<Result<std::string>()>& ask,
                       uint64_t deadline_ms = kPluginAnswerMs) {
    // Those of other tests of this process.
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    const auto answer = ask_in_process("./its.so", ask, deadline_ms);
    EXPECT_LE(::waitpid(-1, nullptr, WNOHANG), 0) << "a child is left for somebody to wait for";
    return answer.ok() ? "it answered" : answer.error().message;
}

TEST(PluginProcess, AnswersAreBytesOfAnyLength) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{3} << 20}) {
        std::string sent(size, '\0');
        for (size_t i = 0; i < size; ++i) sent[i] = static_cast<char>(i * 7);
        const auto answer = ask_in_process("./its.so", [&] { return Result<std::string>(sent); });
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        EXPECT_EQ(answer.value(), sent);
    }
}

TEST(PluginProcess, ErrorsKeepCodeAndMessage) {
    const auto answer = ask_in_process("./its.so", []() -> Result<std::string> {
        return Error{Code::kNotFound, "there is none"};
    });
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::kNotFound);
    EXPECT_EQ(answer.error().message, "there is none");
}

TEST(PluginProcess, ALibraryThatCrashesEndsOrWaitsCostsItsAnswerOnly) {
    EXPECT_EQ(refusal_of([]() -> Result<std::string> {
                  ::raise(SIGSEGV);
                  return std::string();
              }),
              "the plugin './its.so' crashed (signal 11)");
    EXPECT_EQ(refusal_of([]() -> Result<std::string> { ::_exit(3); }),
              "the plugin './its.so' ended its process with status 3 instead of answering");
    const auto wait = []() -> Result<std::string> {
        while (true) ::pause();
    };
    EXPECT_EQ(refusal_of(wait, 200), "the plugin './its.so' did not answer in 0.2 s");
    // It has let go of everything, so that nothing is heard of it any more.
    const auto wait_alone = []() -> Result<std::string> {
        ::close_range(0, ~0U, 0);
        while (true) ::pause();
    };
    EXPECT_EQ(refusal_of(wait_alone, 200), "the plugin './its.so' did not answer in 0.2 s");
}

// Goal: a library cannot write to clients, workers or segments. Oracle: descriptors that are open
// here, at a low and at a high number.
TEST(PluginProcess, OfTheFilesOfThisProcessNoneIsOpenThere) {
    const int low = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const int high = ::fcntl(low, F_DUPFD_CLOEXEC, 200);
    ASSERT_GE(high, 200);
    const auto answer = ask_in_process("./its.so", [low, high]() -> Result<std::string> {
        std::string open;
        // 3 is where the answer goes.
        for (const int fd : {low == 3 ? high : low, high}) {
            open += ::fcntl(fd, F_GETFD) < 0 ? "-" : "open";
        }
        return open;
    });
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer.value(), "--");
    EXPECT_GE(::fcntl(high, F_GETFD), 0) << "here it stays open";
    ::close(low);
    ::close(high);
}

}  // namespace
}  // namespace afd::daemon
