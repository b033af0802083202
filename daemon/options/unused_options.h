// SPDX-License-Identifier: Apache-2.0
#pragma once

// Options that were given and mean nothing as the others are: http_keys without http.

#include <string>
#include <vector>

#include "daemon/options/resolved_config.h"

namespace afd::daemon {

// A sentence for each, with where its value is from. Not for a host that joins, which leaves most
// options to its leader (docs/hosts.md), nor for what --slurm says, or a value that is the default.
std::vector<std::string> unused_options(const ResolvedConfig& resolved);

}  // namespace afd::daemon
