// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/context_copy.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "schedule/wait/flag.h"

namespace afd::ops {

schedule::ScheduleContext private_copy(const schedule::ScheduleContext& shared) {
    schedule::ScheduleContext copy;
    const auto* words = reinterpret_cast<const uint64_t*>(&shared);
    for (size_t i = 0; i < sizeof(copy) / sizeof(uint64_t); ++i) {
        // A plain copy of the struct may be taken apart, and a field be loaded from the shared one
        // again after it was checked.
        const uint64_t word = schedule::load_once(words[i]);
        std::memcpy(reinterpret_cast<std::byte*>(&copy) + i * sizeof(word), &word, sizeof(word));
    }
    return copy;
}

}  // namespace afd::ops
