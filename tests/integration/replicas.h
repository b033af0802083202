// SPDX-License-Identifier: Apache-2.0
#pragma once

// A placement of the demo model's experts in which every FFN worker has all of them.

#include <cstdint>
#include <string>

namespace afd::test {

// A file for --expert-placement, in a directory that goes with the process.
std::string replicated_placement(uint32_t num_ffn_workers);

}  // namespace afd::test
