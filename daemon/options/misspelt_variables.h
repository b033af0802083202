// SPDX-License-Identifier: Apache-2.0
#pragma once

// Variables of the environment that look like an option of afdd and are none: AFD_FNN_WORKERS.

#include <map>
#include <string>
#include <vector>

namespace afd::daemon {

// A sentence for each, with the name that was probably meant. A variable that is like no option may
// be another program's, as are those that Kubernetes makes for a service called afd.
std::vector<std::string> misspelt_variables(const std::map<std::string, std::string>& environment);

}  // namespace afd::daemon
