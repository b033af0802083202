// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory in huge pages where the kernel gives them: streaming weights through 4 KiB pages spends a
// tenth of the time on page tables. Blocks of up to 8 MiB share slabs, so that matrices that are no
// multiple of a huge page do not each leave the rest of one unused; a larger block has a mapping of
// its own, and leaves less than half a huge page. In whatever order blocks come, less than an
// eighth of what they make resident is unused, but for the last slab's last huge page.

#include <cstddef>

namespace afd::ops {

// 64-byte aligned, contents undefined; null if the kernel refuses the memory. Resident already, so
// that no first request waits for zeroed pages, up to 32 MiB: a larger block may be for a worst
// case that never comes. Blocks below 16 KiB come from operator new; all of them in a build with
// AddressSanitizer, which could not watch the ends of the others. Any thread.
void* allocate_huge(size_t bytes);

// Frees what allocate_huge(bytes) gave. The memory goes back to the kernel: of a block with its own
// mapping now, of others when the last block of their slab is gone.
void free_huge(void* block, size_t bytes);

}  // namespace afd::ops
