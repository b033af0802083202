// SPDX-License-Identifier: Apache-2.0
#pragma once

// What works in this configuration, but not as one would think. The start logs it, and
// --check-config says the same; the doctor rates these things itself, and what it measures besides.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config/config.h"

namespace afd::daemon {

// A sentence for each. `allowed_cpus` and `quota`: as plan_cpus() takes them. Nothing of what the
// start refuses, and nothing of how crowded the cores of a host that joins are: its leader says
// which workers it gets.
std::vector<std::string> start_remarks(const Config& config,
                                       const std::vector<uint32_t>& allowed_cpus,
                                       double quota);

}  // namespace afd::daemon
