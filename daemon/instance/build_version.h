// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the afdds of one instance on several hosts must have in common: the version of the program,
// and of what their processes say to each other and compute, which may change between two versions.

#include <string>

namespace afd::daemon {

// Of this build, to be compared and to be shown: "0.1.0 (hosts 3, rows AFDUCX04, ...)".
std::string build_version();

}  // namespace afd::daemon
