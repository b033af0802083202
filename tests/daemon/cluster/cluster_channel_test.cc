// SPDX-License-Identifier: Apache-2.0
//
// Frames between two hosts, over TLS on loopback.
//
// Goal: what one end queues comes out of the other, whole and in order, however TCP and TLS cut it;
// nothing leaves before the handshake is over; and every end of a connection is reported as what it
// was. Method: both ends in this thread, and a peer that speaks TLS without frames. Oracle: the
// texts that went in, and the codes of the header.
#include "daemon/cluster/cluster_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/cluster/raw_tls_peer.h"

namespace afd::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ClusterChannelTest : public ChannelFixture {
  protected:
    // A peer with a good certificate that sends what it likes.
    RawTlsOptions good_certificate() const {
        RawTlsOptions options;
        options.certificate = files().path("node1.pem");
        options.key = files().path("node1.key");
        return options;
    }

    // `raw` connects to the leader's end, until both know each other.
    void greet(RawTlsPeer& raw) {
        ASSERT_TRUE(repeat([&] {
            raw.turn();
            EXPECT_FALSE(turn(*leader_).has_value());
            return leader_->is_established() && raw.is_ready();
        }));
    }
    // Until the leader's end has something new, or has ended.
    void wait_readable() {
        pollfd item = {leader_->fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&item, 1, 60'000), 1);
    }
};

TEST_F(ClusterChannelTest, EachEndKnowsTheOther) {
    connect();
    EXPECT_FALSE(leader_->wants_write()) << "there is nothing to say before the host's hello";
    EXPECT_TRUE(host_->wants_write());
    run_until([&] { return leader_->is_established() && host_->is_established(); });
    EXPECT_EQ(leader_->peer_name(), "node1");
    EXPECT_EQ(host_->peer_name(), "leader");
    EXPECT_FALSE(leader_->wants_write());
    EXPECT_FALSE(host_->wants_write());
}

TEST_F(ClusterChannelTest, FramesGoBothWays) {
    connect();
    host_->queue(message_of("join"));
    host_->queue(message_of(""));
    leader_->queue(message_of("welcome"));
    std::vector<std::string> at_leader;
    std::optional<std::string> at_host;
    run_until([&] {
        while (const auto text = next_text(*leader_)) at_leader.push_back(*text);
        if (const auto text = next_text(*host_)) at_host = text;
        return at_leader.size() == 2 && at_host.has_value();
    });
    EXPECT_THAT(at_leader, ::testing::ElementsAre("join", ""));
    EXPECT_EQ(at_host, "welcome");
    EXPECT_EQ(host_->queued_bytes(), 0U);
}

// Oracle: the bytes on the wire, which are a hello and do not have the text of the message.
TEST_F(ClusterChannelTest, NothingIsSentBeforeTheHandshakeIsOver) {
    TcpPair pair = tcp_pair();
    ClusterChannel host = host_end(std::move(pair.connected));
    host.queue(message_of("secret"));
    const size_t queued_bytes = host.queued_bytes();
    std::string wire(65'536, '\0');
    ASSERT_TRUE(repeat([&] {
        EXPECT_TRUE(host.flush().ok());
        pollfd item = {pair.accepted.get(), POLLIN, 0};
        return ::poll(&item, 1, 0) == 1;
    }));
    const ssize_t size = ::recv(pair.accepted.get(), wire.data(), wire.size(), 0);
    ASSERT_GT(size, 0);
    wire.resize(static_cast<size_t>(size));
    EXPECT_EQ(wire[0], 22) << "a record of the handshake";
    EXPECT_THAT(wire, Not(HasSubstr("secret")));
    EXPECT_EQ(host.queued_bytes(), queued_bytes);
    EXPECT_FALSE(host.is_established());
    EXPECT_FALSE(host.wants_write()) << "it waits for the leader's hello";
}

// Four times as much as the socket takes at once, while the other end sends thousands of small
// frames. Oracle: every text, in its order.
TEST_F(ClusterChannelTest, LongAndManyFramesArriveWholeAndInOrder) {
    constexpr size_t kLongBytes = size_t{4} << 20;
    constexpr size_t kNumShort = 20'000;
    establish();
    std::string long_text(kLongBytes, 'x');
    for (size_t i = 0; i < long_text.size(); ++i) long_text[i] = static_cast<char>('a' + i % 23);
    for (int i = 0; i < 3; ++i) host_->queue(message_of(long_text));
    EXPECT_GT(host_->queued_bytes(), 3 * kLongBytes);
    size_t num_long = 0;
    size_t num_queued = 0;
    size_t num_short = 0;
    run_until([&] {
        for (int i = 0; i < 500 && num_queued < kNumShort; ++i) {
            leader_->queue(message_of(std::to_string(num_queued++)));
        }
        while (const auto text = next_text(*leader_)) num_long += *text == long_text;
        while (const auto text = next_text(*host_)) {
            EXPECT_EQ(*text, std::to_string(num_short));
            ++num_short;
        }
        return num_long == 3 && num_short == kNumShort;
    });
    EXPECT_EQ(host_->queued_bytes(), 0U);
    EXPECT_EQ(leader_->queued_bytes(), 0U);
}

// A queue that grows behind a start that TCP has refused once. Oracle: as above.
TEST_F(ClusterChannelTest, AFullSocketKeepsTheRestForLater) {
    establish();
    const std::string text(1 << 20, 'y');
    size_t num_queued = 0;
    while (num_queued < 8 || host_->queued_bytes() == 0) {
        ASSERT_LT(num_queued, 200U) << "the socket takes everything";
        host_->queue(message_of(text));
        ++num_queued;
        ASSERT_TRUE(host_->flush().ok());
    }
    EXPECT_TRUE(host_->wants_write());
    size_t num_received = 0;
    run_until([&] {
        while (const auto received = next_text(*leader_)) num_received += *received == text;
        return num_received == num_queued;
    });
}

// Goal: a read with a limit does not leave bytes where no poll sees them. Oracle: the descriptor is
// readable until all has come.
TEST_F(ClusterChannelTest, ReadWithALimitLeavesTheRestInTheSocket) {
    establish();
    const std::string text(200'000, 'z');
    host_->queue(message_of(text));
    ASSERT_TRUE(host_->flush().ok());
    std::optional<std::string> received;
    int num_reads = 0;
    while (!received) {
        ASSERT_TRUE(host_->flush().ok());
        wait_readable();
        ASSERT_TRUE(leader_->read(1).ok());
        ++num_reads;
        received = next_text(*leader_);
    }
    EXPECT_EQ(*received, text);
    EXPECT_GT(num_reads, 10);
}

TEST_F(ClusterChannelTest, HalfAFrameWaitsForItsRest) {
    TcpPair pair = tcp_pair();
    leader_.emplace(leader_end(std::move(pair.accepted)));
    RawTlsPeer raw(std::move(pair.connected), good_certificate());
    greet(raw);
    std::string bytes;
    append_frame(message_of("whole"), bytes);
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
        raw.send(bytes.substr(i, 1));
        wait_readable();
        ASSERT_TRUE(leader_->read().ok());
        ASSERT_EQ(next_text(*leader_), std::nullopt);
    }
    raw.send(bytes.substr(bytes.size() - 1) + bytes);
    wait_readable();
    ASSERT_TRUE(leader_->read().ok());
    EXPECT_EQ(next_text(*leader_), "whole");
    EXPECT_EQ(next_text(*leader_), "whole");
    EXPECT_EQ(next_text(*leader_), std::nullopt);
}

TEST_F(ClusterChannelTest, FrameThatIsNoMessageIsDataLoss) {
    struct Case {
        std::string frame;
        const char* complaint;
    };
    for (const Case& bad :
         {Case{std::string("\x01\x00\x00\x01", 4), "frame of 16777217 bytes announced"},
          Case{std::string("\x03\x00\x00\x00\xff\xff\xff", 7), "afd.control.SupervisorMessage"}}) {
        TcpPair pair = tcp_pair();
        leader_.emplace(leader_end(std::move(pair.accepted)));
        RawTlsPeer raw(std::move(pair.connected), good_certificate());
        greet(raw);
        raw.send(bad.frame);
        wait_readable();
        ASSERT_TRUE(leader_->read().ok());
        control::SupervisorMessage message;
        const Result<bool> next = leader_->next(message);
        ASSERT_FALSE(next.ok());
        EXPECT_EQ(next.error().code, Code::kDataLoss);
        EXPECT_THAT(next.error().message, HasSubstr(bad.complaint));
    }
}

TEST_F(ClusterChannelTest, WhatCameBeforeTheEndIsStillDelivered) {
    establish();
    host_->queue(message_of("last words"));
    ASSERT_TRUE(host_->flush().ok());
    host_.reset();
    const Error end = end_of(*leader_, [] {});
    EXPECT_EQ(end.code, Code::kUnavailable);
    EXPECT_THAT(end.message, HasSubstr("the peer closed the connection"));
    EXPECT_EQ(next_text(*leader_), "last words");
    leader_->queue(message_of("too late"));
    EXPECT_EQ(leader_->flush().error().code, Code::kUnavailable);
    EXPECT_EQ(leader_->read().error().code, Code::kUnavailable);
    EXPECT_FALSE(leader_->wants_write());
}

TEST_F(ClusterChannelTest, AGoodbyeIsAnEnd) {
    TcpPair pair = tcp_pair();
    leader_.emplace(leader_end(std::move(pair.accepted)));
    RawTlsPeer raw(std::move(pair.connected), good_certificate());
    greet(raw);
    raw.say_goodbye();
    const Error end = end_of(*leader_, [] {});
    EXPECT_EQ(end.code, Code::kUnavailable);
    EXPECT_EQ(end.message, "the peer closed the connection");
}

// Goal: an end that only sends hears of its peer's end, and takes what came before it.
TEST_F(ClusterChannelTest, SendingToAPeerThatIsGoneIsUnavailable) {
    establish();
    host_->queue(message_of("last words"));
    ASSERT_TRUE(host_->flush().ok());
    host_.reset();
    Result<> flushed;
    ASSERT_TRUE(repeat([&] {
        leader_->queue(message_of("hello?"));
        flushed = leader_->flush();
        return !flushed.ok();
    }));
    EXPECT_EQ(flushed.error().code, Code::kUnavailable);
    EXPECT_EQ(next_text(*leader_), "last words");
}

TEST_F(ClusterChannelTest, PeerThatClosesDuringTheHandshakeIsUnavailable) {
    TcpPair pair = tcp_pair();
    ClusterChannel host = host_end(std::move(pair.connected));
    ASSERT_TRUE(host.flush().ok());
    std::array<char, 65'536> hello;
    pollfd item = {pair.accepted.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&item, 1, 60'000), 1);
    ASSERT_GT(::recv(pair.accepted.get(), hello.data(), hello.size(), 0), 0);
    pair.accepted.reset();
    const Error end = end_of(host, [] {});
    EXPECT_EQ(end.code, Code::kUnavailable);
    EXPECT_THAT(end.message, HasSubstr("closed the connection during the handshake"));
}

TEST_F(ClusterChannelTest, NobodyWhoListensIsUnavailable) {
    sockaddr_in address{};
    listen_on_loopback(address).reset();
    ClusterChannel host = host_end(begin_to_connect(address));
    const Error end = end_of(host, [] {});
    EXPECT_EQ(end.code, Code::kUnavailable);
    EXPECT_THAT(end.message, HasSubstr("Connection refused"));
}

TEST_F(ClusterChannelTest, AMovedChannelGoesOn) {
    connect();
    ASSERT_TRUE(host_->flush().ok());
    ClusterChannel moved = std::move(*host_);
    host_.emplace(std::move(moved));
    run_until([&] { return leader_->is_established() && host_->is_established(); });
    host_->queue(message_of("still here"));
    std::optional<ClusterChannel> other(std::move(*host_));
    host_.emplace(host_end(tcp_pair().connected));
    *host_ = std::move(*other);
    run_until([&] { return next_text(*leader_) == "still here"; });
}

TEST_F(ClusterChannelTest, TheSocketFindsAPeerThatIsGone) {
    connect();
    const auto option = [&](int level, int name) {
        int value = 0;
        socklen_t size = sizeof(value);
        EXPECT_EQ(::getsockopt(leader_->fd(), level, name, &value, &size), 0);
        return value;
    };
    EXPECT_NE(::fcntl(leader_->fd(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    const int silent_s = option(IPPROTO_TCP, TCP_KEEPIDLE) +
                         option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT);
    EXPECT_EQ(silent_s * 1000, ClusterChannel::kGoneAfterMs);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), ClusterChannel::kGoneAfterMs);
}

}  // namespace
}  // namespace afd::daemon
