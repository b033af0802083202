// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much a test does: little on every change, and what scripts/faults asks for in the
// environment.

#include <cstdint>
#include <cstdlib>

namespace afd::test {

inline uint64_t from_environment(const char* name, uint64_t otherwise) {
    const char* value = std::getenv(name);
    return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

}  // namespace afd::test
