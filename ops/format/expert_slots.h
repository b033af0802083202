// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many experts a token goes to at most: its slots are top_k routed ones, then the shared ones.

#include <cstddef>

namespace afd::ops {

inline constexpr size_t kTopKMax = 64;
inline constexpr size_t kSharedExpertsMax = 4;
inline constexpr size_t kExpertSlotsMax = kTopKMax + kSharedExpertsMax;

}  // namespace afd::ops
