// SPDX-License-Identifier: Apache-2.0
#pragma once

// Asks a user's library in a process of its own: a crash or an endless loop there costs the answer,
// and not the instance. What workers load instead is schedule/plugin/plugin_scheduler.h.
//
// The process is a copy of this one that ends with the answer. It has the standard streams and
// nothing else that is open here, and is killed with the thread that asks.

#include <cstdint>
#include <functional>
#include <string>

#include "proto/status.h"

namespace afd::daemon {

// For all questions to a library together. It has the model's layers and numbers to work with and
// no weights, so that a second would be long.
inline constexpr uint64_t kPluginAnswerMs = 5000;

// Runs `ask` in another process, and returns its answer, bytes that only these two understand.
// Blocks for deadline_ms at most; any thread may call it.
// Errors: those of `ask`; kFailedPrecondition: the process crashed, ended or did not answer, with
// the path of the library; kUnavailable: no such process can be started.
Result<std::string> ask_in_process(const std::string& path,
                                   const std::function<Result<std::string>()>& ask,
                                   uint64_t deadline_ms = kPluginAnswerMs);

}  // namespace afd::daemon
