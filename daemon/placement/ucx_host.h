// SPDX-License-Identifier: Apache-2.0
#pragma once

// At which address of this host FFN workers listen when they talk over UCX. Whoever leads or has
// joined is found by the others where they talk to it anyway, so this is the default; an address
// that reaches nobody else is refused.

#include <string>

#include "daemon/config/config.h"
#include "proto/status.h"

namespace afd::daemon {

// What ucx_host and ucx_devices are by default.
inline constexpr const char* kUcxAuto = "auto";

// The ucx_host of a host that the others see at `seen_at`.
// Errors: kInvalidArgument: ucx_host is an address of this machine alone, and `seen_at` is not.
Result<std::string> choose_ucx_host(const Config& config, const std::string& seen_at);

// Of the afdd that leads, or has all workers itself. Every address, as cluster_listen may have it,
// only where no FFN worker of this host listens. REQUIRES: the lists of hosts were parsed;
// cluster_listen was checked, and is set if there are hosts.
// Errors: as above; kInvalidArgument: cluster_listen names no single address, and FFN workers of
// this host need one.
Result<std::string> own_ucx_host(const Config& config);

}  // namespace afd::daemon
