// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which afdd a client talks to: the socket and, for error messages, the instance behind it.

#include <string>

#include "proto/status.h"

namespace afd::client {

struct Endpoint {
    std::string socket_path;
    std::string instance;  // Empty if the socket was named by its path.
    std::string origin{};  // Who named the path: "--socket", "AFD_SOCKET"; empty: the program.
};

// The endpoint of `socket_path` if that is not empty, else of `instance` by the rule of
// proto/socket_path.h; touches the file system only to check that a default directory is ours.
// Errors: kInvalidArgument for a bad name or a path that is too long, which tells its `origin`;
// kPermissionDenied if the default directory could hold another user's socket.
Result<Endpoint> resolve_endpoint(const std::string& socket_path,
                                  const std::string& instance,
                                  const std::string& origin = {});

// What a failed connect() with `error_number` means and how to mend it. Names the afdd that runs
// under the name without a socket, else the other instances that have one in the same directory.
afd::Error explain_connect_failure(const Endpoint& endpoint, int error_number);

}  // namespace afd::client
