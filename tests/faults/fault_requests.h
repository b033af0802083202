// SPDX-License-Identifier: Apache-2.0
#pragma once

// The requests of runs that disturb an instance for long.

#include <vector>

#include "tests/integration/workload.h"

namespace afd::test {

// Short prompts and long ones, greedy and sampled, of different lengths.
std::vector<client::Generate> fault_requests();

}  // namespace afd::test
