// SPDX-License-Identifier: Apache-2.0
#pragma once

// The machine a load run ran on, as far as it explains the numbers.

#include <cstdint>
#include <string>

namespace afd::client {

struct Machine {
    std::string cpu_model;   // "unknown" where the kernel does not say.
    unsigned num_cores = 0;  // That this process may use.
    uint64_t memory_bytes = 0;
    std::string kernel;
};

Machine this_machine();

}  // namespace afd::client
