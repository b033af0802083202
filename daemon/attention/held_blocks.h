// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeldBlocks: the KV blocks that a sequence holds of one BlockGroup, and how many it may.

#include <cstdint>
#include <vector>

namespace afd::daemon {

struct HeldBlocks {
    std::vector<int32_t> table;  // Of positions 0-63, 64-127, ...
    uint32_t num_left = 0;       // The first of them, which it holds no longer.
    uint32_t num_reserved = 0;   // It may hold so many at a time.
};

}  // namespace afd::daemon
