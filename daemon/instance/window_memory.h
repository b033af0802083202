// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory that windows take where workers do not share them (transport = ucx): each worker's
// own, beside its segments. Each takes it at its start, whole.

#include <cstdint>
#include <string>

#include "daemon/config/config.h"
#include "proto/status.h"
#include "schedule/layout/window_layout.h"

namespace afd::daemon {

// The bytes of the windows of the workers that `host` runs (empty: this one), with the rings of
// those that are neighbours. 0: windows are segments, and counted there.
uint64_t window_bytes_on(const std::string& host,
                         const Config& config,
                         const schedule::WindowLayout& layout);

// Errors: kInvalidArgument: no message holds a micro-batch. Else each worker would find out, at
// each of its starts.
Result<> check_window_messages(const Config& config, const schedule::WindowLayout& layout);

}  // namespace afd::daemon
