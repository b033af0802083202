// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory a benchmark passes over in turn so that each part of it comes from memory, not
// from a cache.

#include <cstddef>

namespace afd::bench {

// `least` bytes, or three times the last-level cache where that is more: some servers have hundreds
// of MiB of it.
size_t cold_bytes(size_t least);

}  // namespace afd::bench
