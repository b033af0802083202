// SPDX-License-Identifier: Apache-2.0
#pragma once

// TCP sockets: one that listens, one that connects, and who is at either end.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config/listen_address.h"
#include "daemon/config/port_range.h"
#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

// Binds and listens; non-blocking. `address.port` 0 becomes the port that was given. `option`:
// whose value the address is, for messages. Errors: kAlreadyExists: the port is taken.
// kPermissionDenied: may not, or no such address.
Result<UniqueFd> listen_tcp(ListenAddress& address, const std::string& option);

// The same at the first of the ports that is free. Errors: kAlreadyExists: none
// is. kPermissionDenied: as above.
Result<UniqueFd> listen_within(PortRange ports, ListenAddress& address, const std::string& option);

// Begins to connect; non-blocking, so that a failure shows at the first use.
// Errors: kUnavailable: there is no way to this address.
Result<UniqueFd> connect_tcp(const SocketAddress& to);

// What the system's resolver knows of a host, a name or numbers; at least one. It may ask servers,
// and take seconds. Errors: kUnavailable: there is no such name, or nobody who knows it answers.
Result<std::vector<SocketAddress>> addresses_of(const std::string& host, uint16_t port);

// Who is at the other end, and at this one; nothing: the socket is not connected.
std::optional<SocketAddress> peer_address(int socket);
std::optional<SocketAddress> own_address(int socket);
// For logs: "127.0.0.1:51234", "unknown".
std::string peer_name(int socket);

// The numbers of an address: "127.0.0.1", "::1"; and its text: "[::1]:8000".
ListenAddress listen_address_of(const SocketAddress& address);
// The bytes of a sockaddr, for a message, and back. Nothing: they are no address of IPv4 or IPv6.
std::string to_bytes(const SocketAddress& address);
std::optional<SocketAddress> from_bytes(const std::string& bytes);

}  // namespace afd::daemon
