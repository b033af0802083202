// SPDX-License-Identifier: Apache-2.0
#pragma once

// run_worker: the life of a worker program around its loop. Command line, log, control channel;
// then `serve`, which returns after the shutdown command; then a last word to afdd.

#include <cstdint>

#include "daemon/control/worker_control.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// Sets up from `control.welcome()`, says Ready and runs until afdd says Shutdown.
// `index`: the session or the rank. An error is what stopped it from getting ready.
using ServeWorker = Result<> (*)(WorkerControl& control, uint32_t index);

// Returns what main returns.
int run_worker(int argc, char** argv, control::Role role, ServeWorker serve);

}  // namespace afd::daemon
