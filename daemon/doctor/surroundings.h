// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the doctor finds outside of the machine's own facts: the files and the network that a
// configuration and the environment name. Only reading; nothing is created.

#include <cstdint>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/doctor/finding.h"
#include "daemon/instance/cache_room.h"
#include "daemon/tcp/network_devices.h"
#include "proto/status.h"

namespace afd::daemon {

// Whether this host can show the others who it is; nothing to check where it knows none.
// Errors: those of ClusterIdentity::load().
Result<> check_cluster_files(const Config& config);

// Whether a weight_cache that is named can be used; nothing to check where none is.
// Errors: those of WeightCache::open(), or kFailedPrecondition: it is not there and cannot be made.
Result<> check_named_cache(const Config& config);

// "runtime", "certificates", "cache" and "network". `now_s`: Unix time. `cache_room`: of the weight
// cache, as InstanceMemory has it.
std::vector<Finding> examine_surroundings(const Config& config,
                                          const NetworkDevices& devices,
                                          int64_t now_s,
                                          const CacheRoom& cache_room = {});

}  // namespace afd::daemon
