// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "daemon/loop/socket_listener.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

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
