// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the workers of this host keep packed weights (weight_cache): what is told to them, counted
// before any of them starts, and examined by the doctor.

#include <string>

#include "daemon/config/config.h"

namespace afd::daemon {

struct WeightCacheChoice {
    std::string directory;    // Empty: nowhere.
    std::string why_nowhere;  // Empty: there is a directory, or it is switched off.
    bool is_default = false;  // Nobody named the directory: where it fails, workers do without.
};

WeightCacheChoice choose_weight_cache(const Config& config);

// Whether workers of this host map packed experts, which are one copy for all of them; else each
// has its own. Creates nothing.
bool shares_experts(const Config& config);

}  // namespace afd::daemon
