// SPDX-License-Identifier: Apache-2.0
#pragma once

// The first contact of a worker with afdd, before the control thread runs: the socket, and the
// first message. Blocking, with a deadline.

#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/control/control_channel.h"
#include "daemon/loop/unique_fd.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// Connects to the control socket at `path`. If afdd has spawned this process, the end of afdd is
// its end too from here on (PR_SET_PDEATHSIG); a worker of another parent, a shell, learns it from
// the socket. Errors: kNotFound: no such socket. kUnavailable: nobody listens.
Result<UniqueFd> connect_to_afdd(const std::string& path);

// Says who this is and takes the Welcome; its descriptors are in `channel`.
// Errors: those of await_message(). kDataLoss: not a Welcome. Else afdd refused, with its message.
Result<control::Welcome> say_hello(ControlChannel& channel,
                                   control::Role role,
                                   uint32_t index,
                                   std::chrono::steady_clock::time_point deadline);

// Sends what is queued and reads one message of afdd, waiting for it until `deadline`.
// Errors: kDeadlineExceeded, and those of ControlChannel.
Result<> await_message(ControlChannel& channel,
                       control::SupervisorMessage& message,
                       std::chrono::steady_clock::time_point deadline);

}  // namespace afd::daemon
