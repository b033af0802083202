// SPDX-License-Identifier: Apache-2.0
#pragma once

// 64 random bits of the system.

#include <sys/random.h>

#include <cstdint>

#include "proto/check.h"

namespace afd::daemon {

// getrandom() cannot fail for 8 bytes once the system has booted.
inline uint64_t draw_random() {
    uint64_t bits = 0;
    const ssize_t size = ::getrandom(&bits, sizeof(bits), 0);
    AFD_ASSERT(size == sizeof(bits), "getrandom gave %zd bytes", size);
    return bits;
}

}  // namespace afd::daemon
