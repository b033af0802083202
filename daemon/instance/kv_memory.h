// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory that the KV caches of an instance take. Each attention worker takes its own at its
// start, whole.

#include <cstdint>

#include "daemon/config/config.h"
#include "model/checkpoint/config.h"
#include "proto/status.h"

namespace afd::daemon {

// Of one attention worker, in bytes.
uint64_t kv_bytes_per_worker(const Config& config, const model::ModelConfig& model);

// Of those that run on this host.
uint64_t kv_bytes_here(const Config& config, const model::ModelConfig& model);

// Errors: kResourceExhausted: this host has no room for its caches. Else each worker would find
// out, or be killed for it, at each of its starts.
Result<> check_kv_room(const Config& config, const model::ModelConfig& model);

}  // namespace afd::daemon
