// SPDX-License-Identifier: Apache-2.0
#pragma once

// Footprint: what a process holds, to see whether it grows.

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace afd::test {

struct Footprint {
    int64_t num_descriptors = 0;
    int64_t kib = 0;  // Of private memory.
};

Footprint footprint_of(pid_t pid);

// What its descriptors are, a line each.
std::string descriptors_of(pid_t pid);

}  // namespace afd::test
