// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory in huge pages where the kernel gives them: streaming weights through 4 KiB pages spends a
// tenth of the time on page tables. Many blocks share one slab, so that matrices that are no
// multiple of a huge page waste nothing.

#include <cstddef>

namespace afd::ops {

// 64-byte aligned, contents undefined. Small blocks come from operator new; all of them in a build
// with AddressSanitizer, which could not watch the ends of the others. Any thread.
void* allocate_huge(size_t bytes);

// Frees what allocate_huge(bytes) gave. A slab is unmapped when its last block is gone.
void free_huge(void* block, size_t bytes);

}  // namespace afd::ops
