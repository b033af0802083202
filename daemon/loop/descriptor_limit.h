// SPDX-License-Identifier: Apache-2.0
#pragma once

// DescriptorLimit: how many files this process may have open, before anything depends on it. An
// EventLoop that cannot open its own is a bug of ours and aborts; too low a limit is the user's to
// mend, and must be said before.

#include <cstddef>
#include <optional>

#include "proto/status.h"

namespace afd::daemon {

// What afdd opens before its first worker: lock, loop, sockets, segments, with room to spare.
inline constexpr size_t kDescriptorsMin = 32;

// Raises the limit as far as is allowed, since every worker costs afdd a socket, a doorbell and
// more; and tries whether `num_min` descriptors can be opened now: what was inherited counts too.
// Errors: kResourceExhausted.
Result<> require_descriptors(size_t num_min);

// Files that this process has open. Nothing: that cannot be found out, which takes one more of
// them.
std::optional<size_t> num_open_descriptors();

// How many more it may open; 0 where nobody knows.
size_t num_free_descriptors();

}  // namespace afd::daemon
