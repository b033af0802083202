// SPDX-License-Identifier: Apache-2.0
//
// Oracle: a socket that listens, and what the system's resolver makes of names that need no server.
#include "daemon/tcp/tcp_connector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "daemon/tcp/tcp_socket.h"

namespace afd::daemon {
namespace {

Result<UniqueFd> begin(const std::string& host, uint16_t port) {
    EventLoop loop;
    std::optional<Result<UniqueFd>> begun;
    bool is_running = false;
    const auto address = parse_join_address(host + ":" + std::to_string(port));
    TcpConnector connector(loop, address.value(), [&](Result<UniqueFd> socket) {
        begun = std::move(socket);
        if (is_running) loop.stop();
    });
    connector.start();
    is_running = true;
    if (!begun) loop.run();
    return std::move(*begun);
}

TEST(TcpConnector, ConnectsToNumbersAndNames) {
    ListenAddress address = parse_listen_address("127.0.0.1:0").value();
    const auto listening = listen_tcp(address, "test");
    ASSERT_TRUE(listening.ok());
    // The second is a name to a JoinAddress, and numbers of an old form to the resolver.
    for (const char* host : {"127.0.0.1", "0x7f000001"}) {
        const auto socket = begin(host, address.port);
        ASSERT_TRUE(socket.ok()) << host << ": " << socket.error().message;
        EXPECT_TRUE(peer_address(socket.value().get())) << host;
    }
}

// ".invalid" is nobody's (RFC 6761).
TEST(TcpConnector, SaysThatANameIsNotKnown) {
    const auto socket = begin("no-such-host.invalid", 1);
    ASSERT_FALSE(socket.ok());
    EXPECT_EQ(socket.error().code, Code::kUnavailable);
    EXPECT_THAT(socket.error().message,
                ::testing::HasSubstr("the name of host 'no-such-host.invalid' is not known: "));
}

TEST(TcpConnector, CallsNobodyWhenStopped) {
    EventLoop loop;
    bool is_called = false;
    {
        TcpConnector connector(loop,
                               parse_join_address("no-such-host.invalid:1").value(),
                               [&](const Result<UniqueFd>&) { is_called = true; });
        connector.start();
        connector.stop();
        Timer timer(loop, [&] { loop.stop(); });
        timer.start(50);
        loop.run();
    }
    EXPECT_FALSE(is_called);
}

// Goal: a host behind a firewall listens where that lets others through. Oracle: the first port is
// taken by the test.
TEST(ListenWithin, TakesTheFirstPortThatIsFree) {
    ListenAddress taken = parse_listen_address("127.0.0.1:0").value();
    const auto listening = listen_tcp(taken, "test");
    ASSERT_TRUE(listening.ok());
    ListenAddress address = taken;
    const auto none = listen_within({taken.port, taken.port}, address, "host_ports");
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, Code::kAlreadyExists);
    EXPECT_THAT(none.error().message, ::testing::HasSubstr("each of these ports of 127.0.0.1"));
    const auto last = static_cast<uint16_t>(std::min(taken.port + 200, 65535));
    const auto found = listen_within({taken.port, last}, address, "host_ports");
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_GT(address.port, taken.port);
    EXPECT_LE(address.port, last);
    EXPECT_TRUE(listen_within({}, address, "host_ports").ok()) << "any";
}

}  // namespace
}  // namespace afd::daemon
