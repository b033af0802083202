// SPDX-License-Identifier: Apache-2.0
#pragma once

// Zeroed memory of whole pages that no other process maps: of windows, of what is kept for peers
// (UcxOutbox), and of two-phase rounds.
// Ask for room first (memory_room.h): the kernel may promise memory that it does not have, and ends
// who touches it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "proto/failure.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

struct UcxFree {
    void operator()(std::byte* bytes) const { std::free(bytes); }
};
using UcxMemory = std::unique_ptr<std::byte, UcxFree>;

inline constexpr uint64_t kUcxPageBytes = 4096;

// What make_ucx_memory(bytes) takes.
constexpr uint64_t ucx_memory_bytes(uint64_t bytes) {
    return std::max(round_up(bytes, kUcxPageBytes), kUcxPageBytes);
}

// Errors: kResourceExhausted: not even the kernel's promise, as with a limit of the address space.
inline Result<UcxMemory> make_ucx_memory(uint64_t bytes) {
    const uint64_t rounded = ucx_memory_bytes(bytes);
    UcxMemory memory(static_cast<std::byte*>(std::aligned_alloc(kUcxPageBytes, rounded)));
    if (memory == nullptr) {
        return resource_exhausted("no memory for {} bytes of rows", with(rounded));
    }
    // Touched here, so that no page comes in while rows arrive.
    std::fill_n(memory.get(), rounded, std::byte{0});
    return memory;
}

}  // namespace afd::schedule
