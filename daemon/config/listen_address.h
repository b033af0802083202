// SPDX-License-Identifier: Apache-2.0
#pragma once

// ListenAddress: where a TCP front end listens, as a user writes it: "127.0.0.1:8000",
// "[::1]:8000", "localhost:8000". Numbers only; names would be a question to a server at every
// start.

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "proto/status.h"

namespace afd::daemon {

struct ListenAddress {
    std::string host;   // "127.0.0.1"; of IPv6 without brackets.
    uint16_t port = 0;  // 0: any that is free.
    bool is_ipv6 = false;

    // Only this machine can reach it.
    bool is_loopback() const;
    // As in a URL: "127.0.0.1:8000", "[::1]:8000".
    std::string text() const;
};

// "HOST:PORT", whatever HOST is; nothing: there is no colon, or no port behind the last one.
struct HostAndPort {
    std::string host;
    uint16_t port = 0;
};
std::optional<HostAndPort> split_port(const std::string& text);

// Errors: kInvalidArgument naming what is allowed.
Result<ListenAddress> parse_listen_address(const std::string& text);

// For an option that may be empty. Errors: as parse_listen_address().
Result<> check_listen_address(const std::string& value);

// For bind(). REQUIRES: the address was parsed.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;
};
SocketAddress socket_address_of(const ListenAddress& address);

}  // namespace afd::daemon
