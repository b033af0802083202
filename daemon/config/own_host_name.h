// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this host is called among the hosts of a cluster, as its certificate has to name it.

#include <string>

#include "daemon/config/config.h"

namespace afd::daemon {

// "leader", unless it joins: then host_name, or what the machine is called, in lower case. That may
// be no name of a host (proto/host_name.h).
std::string own_host_name(const Config& config);

}  // namespace afd::daemon
