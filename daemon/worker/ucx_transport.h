// SPDX-License-Identifier: Apache-2.0
#pragma once

// The transport over UCX, for the two worker programs: a library of its own, because UCX changes
// how a process that has it loaded maps memory, and afdd has no use for it.

#include "daemon/worker/worker_transport.h"

namespace afd::daemon {

// Lets attach_dispatch() and attach_returns() do what a Welcome with UCX asks for, and removes the
// crash handlers that UCX has installed, whatever the transport. Call it first.
void use_ucx();

}  // namespace afd::daemon
