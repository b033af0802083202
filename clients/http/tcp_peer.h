// SPDX-License-Identifier: Apache-2.0
#pragma once

// TcpPeer: the address of a server, found once, and sockets to it.

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <string>

#include "clients/cancellation.h"
#include "clients/http/http_url.h"
#include "proto/status.h"

namespace afd::client {

struct TcpPeer {
    sockaddr_storage address{};
    socklen_t address_size = 0;
    std::string name;  // For messages: "127.0.0.1:8000".
};

// Until when the first of `num_left` addresses may be tried: for its equal part of the time that is
// left. An address whose network swallows packets leaves the others theirs. REQUIRES: num_left > 0.
std::chrono::steady_clock::time_point deadline_of_first(
    size_t num_left,
    std::chrono::steady_clock::time_point now,
    std::chrono::steady_clock::time_point deadline);

// Asks the name server and takes the first address that accepts a connection, as
// deadline_of_first() shares the time among them; blocks.
// Errors: kNotFound: no such host. kUnavailable: nobody accepts, with how to mend it.
// kDeadlineExceeded, kCancelled.
Result<TcpPeer> find_peer(const HttpUrl& url,
                          std::chrono::steady_clock::time_point deadline,
                          const Cancellation& cancellation);

// A socket that does not block and is being connected: once it is writable, connect_error() tells.
// The caller closes it. Errors: kUnavailable; kResourceExhausted: too many are open.
Result<int> begin_connect(const TcpPeer& peer);

// Why the connection did not come about; ok: it did.
Result<> connect_error(int socket, const TcpPeer& peer);

// Waits for the connection of begin_connect(). Errors: those of both; kDeadlineExceeded,
// kCancelled.
Result<> end_connect(int socket,
                     const TcpPeer& peer,
                     std::chrono::steady_clock::time_point deadline,
                     const Cancellation& cancellation);

// What a call that failed with `error_number` means for the connection to `peer`.
afd::Error explain_socket_error(const TcpPeer& peer, int error_number);

// Waits until `socket` has one of `events` (of poll). Errors: kDeadlineExceeded, kCancelled.
Result<> wait_for_socket(int socket,
                         short events,
                         std::chrono::steady_clock::time_point deadline,
                         const Cancellation& cancellation);

}  // namespace afd::client
