// SPDX-License-Identifier: Apache-2.0
//
// Who is let in by a channel, and what the others are told.
//
// Goal: only a peer with a certificate of the same CA, valid today and for a host, is ever
// established; whoever is not is refused with words that name the cause. Method: peers with every
// other kind of certificate, with none, and without TLS, against a real end. Oracle: the code and
// the cause in the message, and that no end of ours calls itself established.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/cluster/raw_tls_peer.h"

namespace afd::daemon {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class ClusterTrustTest : public ChannelFixture {
  protected:
    // FILE.pem and FILE.key, shown by a peer that connects, or that is connected to.
    static RawTlsOptions shown(const std::string& file, bool connects = true) {
        RawTlsOptions options;
        options.connects = connects;
        options.certificate = files().path(file + ".pem");
        options.key = files().path(file + ".key");
        return options;
    }

    static Error leader_refuses(const RawTlsOptions& options) {
        TcpPair pair = tcp_pair();
        ClusterChannel leader = leader_end(std::move(pair.accepted));
        RawTlsPeer raw(std::move(pair.connected), options);
        const Error end = end_of(leader, [&] { raw.turn(); });
        EXPECT_FALSE(leader.is_established());
        return end;
    }
    static Error host_refuses(const RawTlsOptions& options) {
        TcpPair pair = tcp_pair();
        ClusterChannel host = host_end(std::move(pair.connected));
        RawTlsPeer raw(std::move(pair.accepted), options);
        const Error end = end_of(host, [&] { raw.turn(); });
        EXPECT_FALSE(host.is_established());
        return end;
    }
    static Error leader_hears(const std::string& bytes) {
        TcpPair pair = tcp_pair();
        ClusterChannel leader = leader_end(std::move(pair.accepted));
        EXPECT_EQ(::send(pair.connected.get(), bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
        const Error end = end_of(leader, [] {});
        EXPECT_FALSE(leader.is_established());
        return end;
    }
};

// So that the refusals below are those of what is wrong in them.
TEST_F(ClusterTrustTest, TheTestsOwnCertificatesAreAccepted) {
    files().issue("fresh", "node7", -1, 1);
    TcpPair pair = tcp_pair();
    ClusterChannel leader = leader_end(std::move(pair.accepted));
    RawTlsPeer raw(std::move(pair.connected), shown("fresh"));
    ASSERT_TRUE(repeat([&] {
        raw.turn();
        EXPECT_FALSE(turn(leader).has_value());
        return leader.is_established();
    }));
    EXPECT_EQ(leader.peer_name(), "node7");
}

// Both ends are real: each end is told, the one by its own look, the other by an alert.
TEST_F(ClusterTrustTest, AnotherCaIsRefusedByBothEnds) {
    const ClusterFiles others;
    TcpPair pair = tcp_pair();
    ClusterChannel leader = leader_end(std::move(pair.accepted));
    ClusterChannel host =
        channel_of(ClusterChannel::connect(std::move(pair.connected), others.identity("node1")));
    std::optional<Error> leader_end;
    const Error host_end = end_of(host, [&] {
        if (!leader_end) leader_end = turn(leader);
    });
    if (!leader_end) leader_end = end_of(leader, [] {});
    EXPECT_EQ(host_end.code, Code::kPermissionDenied);
    EXPECT_THAT(host_end.message, HasSubstr("the peer's certificate is signed by another CA"));
    EXPECT_EQ(leader_end->code, Code::kPermissionDenied);
    EXPECT_THAT(
        leader_end->message,
        AllOf(HasSubstr("the peer refused our certificate (alert"), HasSubstr("unknown ca")));
    EXPECT_FALSE(host.is_established());
    EXPECT_FALSE(leader.is_established());
}

TEST_F(ClusterTrustTest, AHostOfAnotherCaIsRefused) {
    const ClusterFiles others;
    RawTlsOptions options;
    options.certificate = others.path("node1.pem");
    options.key = others.path("node1.key");
    const Error end = leader_refuses(options);
    EXPECT_EQ(end.code, Code::kPermissionDenied);
    EXPECT_THAT(end.message, HasSubstr("signed by another CA"));
}

// The certificates of hosts are of the CA, but are none themselves.
TEST_F(ClusterTrustTest, TheCaItselfIsNoHost) {
    const Error end = leader_refuses(shown("ca"));
    EXPECT_EQ(end.code, Code::kPermissionDenied);
}

TEST_F(ClusterTrustTest, AnExpiredCertificateIsRefusedByEitherEnd) {
    files().issue("old", "node1", -10, -1);
    Error end = leader_refuses(shown("old"));
    EXPECT_EQ(end.code, Code::kPermissionDenied);
    EXPECT_THAT(end.message, HasSubstr("the peer's certificate has expired"));
    files().issue("old-leader", "leader", -10, -1);
    end = host_refuses(shown("old-leader", false));
    EXPECT_EQ(end.code, Code::kPermissionDenied);
    EXPECT_THAT(end.message, HasSubstr("the peer's certificate has expired"));
}

TEST_F(ClusterTrustTest, ACertificateOfTomorrowIsRefused) {
    files().issue("early", "node1", 1, 10);
    const Error end = leader_refuses(shown("early"));
    EXPECT_EQ(end.code, Code::kPermissionDenied);
    EXPECT_THAT(end.message, HasSubstr("not valid yet; do the clocks"));
}

TEST_F(ClusterTrustTest, ACertificateThatNamesNoHostIsRefused) {
    for (const char* name : {"Node 1", "../x", "ca"}) {
        files().issue("nameless", name, -1, 1);
        const Error end = leader_refuses(shown("nameless"));
        EXPECT_EQ(end.code, Code::kPermissionDenied) << name;
        EXPECT_THAT(end.message, HasSubstr("names no host")) << name;
    }
}

TEST_F(ClusterTrustTest, APeerWithoutACertificateIsRefused) {
    const Error end = leader_refuses({});
    EXPECT_EQ(end.code, Code::kPermissionDenied);
    EXPECT_THAT(end.message, HasSubstr("the peer showed no certificate"));
}

// The connecting end is established before its peer has looked: the refusal comes later, by a read
// or by a flush.
TEST_F(ClusterTrustTest, ARefusalReachesTheConnectingEnd) {
    for (const bool has_something_to_say : {false, true}) {
        TcpPair pair = tcp_pair();
        ClusterChannel host = host_end(std::move(pair.connected));
        if (has_something_to_say) host.queue(message_of("join"));
        RawTlsOptions options = shown("leader", false);
        options.trusts_nobody = true;
        RawTlsPeer raw(std::move(pair.accepted), options);
        const Error end = end_of(host, [&] { raw.turn(); });
        EXPECT_EQ(end.code, Code::kPermissionDenied);
        EXPECT_THAT(end.message, HasSubstr("the peer refused our certificate (alert unknown ca)"));
    }
}

TEST_F(ClusterTrustTest, AnOlderVersionIsRefused) {
    RawTlsOptions options = shown("node1");
    options.version_max = TLS1_2_VERSION;
    const Error end = leader_refuses(options);
    EXPECT_EQ(end.code, Code::kDataLoss);
    EXPECT_THAT(end.message, HasSubstr("not TLS 1.3"));
}

TEST_F(ClusterTrustTest, APeerThatSpeaksPlainTextIsRefused) {
    std::string frame;
    append_frame(message_of("join"), frame);
    for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: afd\r\n\r\n"),
                                     std::string("SSH-2.0-OpenSSH_9.2p1\r\n"),
                                     frame + std::string(64, '\0')}) {
        const Error end = leader_hears(bytes);
        EXPECT_EQ(end.code, Code::kDataLoss) << bytes;
        EXPECT_THAT(end.message, HasSubstr("not TLS 1.3")) << bytes;
    }
}

// Bytes with the head of a record of the handshake get further into the library than others.
TEST_F(ClusterTrustTest, RandomBytesAreRefused) {
    std::mt19937 random(20261125);
    for (int i = 0; i < 200; ++i) {
        std::string bytes =
            i % 2 == 0 ? std::string("\x16\x03\x01\x10\x00", 5) : std::string("\x15");
        while (bytes.size() < 5000) bytes += static_cast<char>(random());
        const Error end = leader_hears(bytes);
        EXPECT_EQ(end.code, Code::kDataLoss) << "seed 20261125, case " << i;
    }
}

}  // namespace
}  // namespace afd::daemon
