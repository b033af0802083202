// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "daemon/loop/socket_listener.h"
#include "tests/file_size_limit.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(InstanceLock, SecondOneIsRefusedWithThePidOfTheFirst) {
    const test::TemporaryDirectory directory;
    const auto first = InstanceLock::acquire(directory.path("x.lock"), "x");
    ASSERT_TRUE(first.ok()) << first.error().message;
    const auto second = InstanceLock::acquire(directory.path("x.lock"), "x");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
    EXPECT_THAT(second.error().message, HasSubstr("pid " + std::to_string(::getpid())));
}

TEST(InstanceLock, IsFreeAgainAfterItsOwnerIsGone) {
    const test::TemporaryDirectory directory;
    { ASSERT_TRUE(InstanceLock::acquire(directory.path("x.lock"), "x").ok()); }
    EXPECT_TRUE(InstanceLock::acquire(directory.path("x.lock"), "x").ok());
}

TEST(InstanceLock, HasThePidOfItsOwnerAndNothingElse) {
    const test::TemporaryDirectory directory;
    const std::string file = directory.write("x.lock", "123456789012345\n");
    const auto lock = InstanceLock::acquire(file, "x");
    ASSERT_TRUE(lock.ok()) << lock.error().message;
    EXPECT_EQ(text_of(file), std::to_string(::getpid()) + "\n");
}

// Goal: the pid is for the message only: without room for it afdd starts, and the message names
// nobody rather than who had the lock before.
TEST(InstanceLock, AFullDiskKeepsNobodyFromHavingIt) {
    const test::TemporaryDirectory directory;
    const std::string file = directory.write("x.lock", "123\n");
    const test::FileSizeLimit full(0);
    const auto lock = InstanceLock::acquire(file, "x");
    ASSERT_TRUE(lock.ok()) << lock.error().message;
    const Result<> signed_ = lock.value().sign();
    ASSERT_FALSE(signed_.ok());
    EXPECT_THAT(signed_.error().message,
                HasSubstr("cannot write the pid of this afdd to the lock file '" + file + "': "));
    const auto second = InstanceLock::acquire(file, "x");
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.error().message, HasSubstr("afdd with pid unknown; stop it"));
}

TEST(SocketListener, SocketIsPrivateAndServedPathsAreRefused) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("s.sock");
    EventLoop loop;
    {
        const auto first = SocketListener::listen(loop, path, [](UniqueFd, PeerCredentials) {});
        ASSERT_TRUE(first.ok()) << first.error().message;
        struct stat status {};
        ASSERT_EQ(::stat(path.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777, 0600U);
        const auto second = SocketListener::listen(loop, path, [](UniqueFd, PeerCredentials) {});
        ASSERT_FALSE(second.ok());
        EXPECT_THAT(second.error().message, HasSubstr("is served by another process"));
    }
    EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the file goes with its listener";
}

TEST(SocketListener, StaleSocketIsReplacedButNoOtherFile) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("s.sock");
    {
        // A socket that was bound and never removed.
        EventLoop loop;
        const auto listener = SocketListener::listen(loop, path, [](UniqueFd, PeerCredentials) {});
        ASSERT_EQ(::rename(path.c_str(), directory.path("stale.sock").c_str()), 0);
    }
    EventLoop loop;
    EXPECT_TRUE(
        SocketListener::listen(loop, directory.path("stale.sock"), [](UniqueFd, PeerCredentials) {
        }).ok());
    const std::string file = directory.write("file", "precious");
    const auto refused = SocketListener::listen(loop, file, [](UniqueFd, PeerCredentials) {});
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("is not a socket"));
}

}  // namespace
}  // namespace afd::daemon
