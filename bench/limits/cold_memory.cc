// SPDX-License-Identifier: Apache-2.0

#include "bench/limits/cold_memory.h"

#include <unistd.h>

#include <algorithm>

#include "bench/limits/limit_loops.h"

namespace afd::bench {
namespace {

constexpr size_t kReadUnit = 256;  // Of the loop that reads.

}  // namespace

size_t cold_bytes(size_t least) {
    // Negative or 0 where the system does not say.
    const long last_level = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return last_level <= 0 ? least : std::max(least, 3 * static_cast<size_t>(last_level));
}

void read_once(std::span<const std::byte> memory) {
    limit_loops().read(memory.data(), memory.size() / kReadUnit * kReadUnit);
}

}  // namespace afd::bench
