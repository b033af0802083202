// SPDX-License-Identifier: Apache-2.0
#include "calls/available_memory.h"

#include "schedule/shared_memory/memory_room.h"

namespace afd::calls {
namespace {

constexpr uint64_t kUnlimited = UINT64_MAX;
constexpr uint64_t kAlwaysThere = uint64_t{16} << 20;

}  // namespace

uint64_t available_memory(uint64_t needed) {
    return needed <= kAlwaysThere ? kUnlimited : schedule::available_memory_bytes();
}

}  // namespace afd::calls
