// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/socket_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <string>

#include "proto/socket_path.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

// Goal: who is turned away can be found in the log. Only root gets past the mode of the socket, so
// the decision is tested, and not a connection.
TEST(SocketListener, RefusalSaysWhoAskedAndWhoIsServed) {
    EXPECT_FALSE(refusal_of(PeerCredentials{7, 1000}, 1000).has_value());
    EXPECT_EQ(refusal_of(PeerCredentials{7, 0}, 1000),
              "pid 7 is of uid 0; only uid 1000 is served");
    EXPECT_EQ(refusal_of(Error{Code::kPermissionDenied, "cannot ask"}, 1000), "cannot ask");
}

// A socket of the other kind: nobody who connects tells whether somebody hears it.
TEST(SocketListener, ASocketThatIsNoStreamIsLeftToItsOwner) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("a.sock");
    const sockaddr_un address = socket_address(path).value();
    const UniqueFd owner(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(owner.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EventLoop loop;
    const auto refused = SocketListener::listen(loop, path, [](UniqueFd, PeerCredentials) {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kAlreadyExists);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("is in the way and may be in use"));
    EXPECT_TRUE(std::filesystem::is_socket(path));
}

TEST(SocketListener, ASocketThatNobodyServesIsReplaced) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("a.sock");
    const sockaddr_un address = socket_address(path).value();
    {
        const UniqueFd owner(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::bind(owner.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
                  0);
    }
    EventLoop loop;
    const auto listener = SocketListener::listen(loop, path, [](UniqueFd, PeerCredentials) {});
    EXPECT_TRUE(listener.ok()) << listener.error().message;
}

// Goal: the end of one afdd does not cut another off from its clients. Method: somebody removes the
// file of the first, and a second one listens at the same path. Oracle: whose file is there.
TEST(SocketListener, TheFileOfAnotherIsNotRemoved) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("a.sock");
    EventLoop loop;
    const auto listen = [&] {
        return SocketListener::listen(loop, path, [](UniqueFd, PeerCredentials) {}).value();
    };
    auto first = listen();
    std::filesystem::remove(path);
    auto second = listen();
    first.reset();
    EXPECT_TRUE(std::filesystem::is_socket(path));
    second.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace afd::daemon
