// SPDX-License-Identifier: Apache-2.0
#pragma once

// prefer_huge_pages: for memory that somebody else has allocated. What allocates in huge pages by
// itself is ops/tensor/huge_memory.h.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace afd::ops {

// Asks for huge pages where `memory` covers whole ones, before it is touched. The kernel may
// decline.
inline void prefer_huge_pages(void* memory, size_t bytes) {
    constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
    const auto first = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t end = (first + bytes) / kHugePage * kHugePage;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace afd::ops
