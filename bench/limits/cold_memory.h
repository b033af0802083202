// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory a benchmark passes over in turn so that each part of it comes from memory, not
// from a cache.

#include <cstddef>
#include <span>

namespace afd::bench {

// `least` bytes, or three times the last-level cache where that is more: some servers have hundreds
// of MiB of it.
size_t cold_bytes(size_t least);

// Reads all of it once. Memory that was only written so far is slow to read: on a virtual machine
// with a Xeon of 480 MiB last-level cache, 9 GB/s instead of 15.
void read_once(std::span<const std::byte> memory);

}  // namespace afd::bench
