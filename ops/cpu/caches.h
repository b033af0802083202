// SPDX-License-Identifier: Apache-2.0
#pragma once

// Caches: how large a core's own caches are and what suits them, of which the sizes of blocks
// follow (ops/cpu/block_sizes.h). The processor is asked, not the operating system: a worker may
// open no file of it, and some virtual machines have none.

#include <cstddef>
#include <cstdint>

namespace afd::ops::cpu {

struct Caches {
    size_t first_level = 0;   // Bytes of data.
    size_t second_level = 0;  // Bytes.
    // Whether lines from memory come faster by way of the second-level cache, as on Intel's
    // processors: a core waits for many more of them there than at its first-level one.
    bool is_filled_by_second_level = false;

    friend bool operator==(const Caches&, const Caches&) = default;
};

// Where nobody says: what the smallest servers have.
inline constexpr Caches kSmallCaches{size_t{32} << 10, size_t{256} << 10};

struct CpuidWords {
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t c = 0;
    uint32_t d = 0;
};

// CPUID(leaf, index); zeros for a leaf that the processor lacks.
using Cpuid = CpuidWords (*)(uint32_t leaf, uint32_t index);

// What an x86 processor says: leaf 4 (Intel) or 0x8000001D (AMD), a cache an index; where both are
// empty, as in some virtual machines, 0x80000005 and 0x80000006 (AMD). A level that none of them
// names is that of kSmallCaches. Whose processor it is, leaf 0 says.
Caches caches_of(Cpuid cpuid);

// This processor's. kSmallCaches where it is no x86 one.
const Caches& processor_caches();

}  // namespace afd::ops::cpu
