// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an instance says of itself on SIGUSR1: its status as one line of JSON, for whoever has its
// pid and nothing that speaks to its socket.

#include <string>

#include "proto/client.pb.h"

namespace afd::daemon {

// All fields, by the names of proto/client.proto and with numbers as numbers, as in `afdctl status
// --json`.
std::string state_text(const client::Status& status);

}  // namespace afd::daemon
