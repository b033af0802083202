// SPDX-License-Identifier: Apache-2.0
#pragma once

// The TCP sockets of the HTTP front end: the one that listens, and who is at the end of another.

#include <string>

#include "daemon/config/listen_address.h"
#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

// Binds and listens; non-blocking. `address.port` 0 becomes the port that was given.
// Errors: kAlreadyExists: the port is taken. kPermissionDenied: may not, or no such address.
Result<UniqueFd> listen_tcp(ListenAddress& address);

// Who is at the other end, for logs: "127.0.0.1:51234".
std::string peer_name(int socket);

}  // namespace afd::daemon
