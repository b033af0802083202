// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two ends of a TCP connection on loopback, and what turns them as their owners' loops would, in
// this one thread.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "daemon/cluster/cluster_channel.h"
#include "proto/control.pb.h"
#include "tests/daemon/cluster/cluster_files.h"

namespace afd::daemon {

struct TcpPair {
    UniqueFd accepted;
    UniqueFd connected;
};

inline UniqueFd listen_on_loopback(sockaddr_in& address) {
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = sizeof(address);
    AFD_ASSERT(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                   ::listen(listener.get(), 4) == 0 &&
                   ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
               "cannot listen: errno %d",
               errno);
    return listener;
}

// As an owner has it: the connecting end does not wait for the connection.
inline UniqueFd begin_to_connect(const sockaddr_in& address) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int status =
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    AFD_ASSERT(status == 0 || errno == EINPROGRESS, "cannot connect: errno %d", errno);
    return socket;
}

inline TcpPair tcp_pair() {
    sockaddr_in address{};
    const UniqueFd listener = listen_on_loopback(address);
    TcpPair pair;
    pair.connected = begin_to_connect(address);
    pair.accepted = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    AFD_ASSERT(pair.accepted.valid(), "accept4: errno %d", errno);
    return pair;
}

// One turn of an owner's loop; the error with which the channel ended, if it has.
inline std::optional<Error> turn(ClusterChannel& channel) {
    if (channel.wants_write()) {
        if (const Result<> flushed = channel.flush(); !flushed.ok()) return flushed.error();
    }
    if (const Result<> taken = channel.read(ClusterChannel::kReadBytesPerTurn); !taken.ok()) {
        return taken.error();
    }
    return std::nullopt;
}

// Calls `step` until it returns true; false: it never did. A watchdog, no claim about speed.
inline bool repeat(const std::function<bool()>& step) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!step()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        ::poll(nullptr, 0, 1);
    }
    return true;
}

// The error with which `channel` ends while its peer does `peer_turn`.
inline Error end_of(ClusterChannel& channel, const std::function<void()>& peer_turn) {
    std::optional<Error> end;
    const bool has_ended = repeat([&] {
        peer_turn();
        end = turn(channel);
        return end.has_value();
    });
    EXPECT_TRUE(has_ended) << "the channel goes on";
    return end.value_or(Error{Code::kOk, "the channel goes on"});
}

// The leader listens, node1 connects; both have certificates of `files()`.
class ChannelFixture : public ::testing::Test {
  protected:
    ChannelFixture() { ::signal(SIGPIPE, SIG_IGN); }

    static const ClusterFiles& files() {
        static const ClusterFiles made({"node1", "node2"});
        return made;
    }

    static ClusterChannel channel_of(Result<ClusterChannel> made) {
        AFD_ASSERT(made.ok(), "%s", made.error().message.c_str());
        return std::move(made).value();
    }
    static ClusterChannel leader_end(UniqueFd socket) {
        return channel_of(ClusterChannel::accept(std::move(socket), files().identity("leader")));
    }
    static ClusterChannel host_end(UniqueFd socket) {
        return channel_of(ClusterChannel::connect(std::move(socket), files().identity("node1")));
    }

    void connect() {
        TcpPair pair = tcp_pair();
        leader_.emplace(leader_end(std::move(pair.accepted)));
        host_.emplace(host_end(std::move(pair.connected)));
    }
    // Turns both ends until `holds()`; an end of one of them fails the test.
    void run_until(const std::function<bool()>& holds) {
        const bool came = repeat([&] {
            for (ClusterChannel* channel : {&*leader_, &*host_}) {
                const std::optional<Error> end = turn(*channel);
                EXPECT_FALSE(end.has_value()) << end->message;
                if (end) return true;
            }
            return holds();
        });
        ASSERT_TRUE(came) << "watchdog";
    }
    void establish() {
        connect();
        run_until([&] { return leader_->is_established() && host_->is_established(); });
    }

    std::optional<ClusterChannel> leader_;
    std::optional<ClusterChannel> host_;
};

// Any message with a text does.
inline control::SupervisorMessage message_of(const std::string& text) {
    control::SupervisorMessage message;
    message.mutable_refused()->set_message(text);
    return message;
}

// The text of the next whole frame; nothing: none is complete.
inline std::optional<std::string> next_text(ClusterChannel& channel) {
    control::SupervisorMessage message;
    const Result<bool> is_there = channel.next(message);
    EXPECT_TRUE(is_there.ok()) << is_there.error().message;
    if (!is_there.ok() || !is_there.value()) return std::nullopt;
    return message.refused().message();
}

}  // namespace afd::daemon
