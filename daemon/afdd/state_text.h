// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an instance says of itself on SIGUSR1: its status as one line of JSON, for whoever has its
// pid and nothing that speaks to its socket.

#include <string>

#include "proto/client.pb.h"

namespace afd::daemon {

// Fields have the names of proto/client.proto, as in `afdctl status --json`; 64-bit integers are
// strings, as in all JSON of protobuf.
std::string state_text(const client::Status& status);

}  // namespace afd::daemon
