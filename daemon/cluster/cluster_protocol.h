// SPDX-License-Identifier: Apache-2.0
#pragma once

// What both ends of cluster.proto keep to.

#include <cstddef>
#include <cstdint>

namespace afd::daemon {

// Join.version; raise it with every incompatible change of cluster.proto or control.proto.
inline constexpr uint32_t kClusterVersion = 5;

// Each end says something at this interval,
inline constexpr uint64_t kBeatMs = 500;
// and gives the other up when it has heard nothing for this long, from the opening on.
inline constexpr uint64_t kSilentMs = 5000;

// Whoever passes messages on reads nothing from one side while the other has this much to take.
inline constexpr size_t kRelayedBytesMax = size_t{4} << 20;

}  // namespace afd::daemon
