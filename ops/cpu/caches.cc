// SPDX-License-Identifier: Apache-2.0

#include "ops/cpu/caches.h"

#ifdef AFD_OPS_X86
#include <cpuid.h>
#endif

namespace afd::ops::cpu {
namespace {

// One cache of leaf 4 or 0x8000001D.
void add_cache(const CpuidWords& words, Caches& caches) {
    constexpr uint32_t kInstructions = 2;
    const uint32_t type = words.a & 31;
    if (type == kInstructions) return;
    const auto field = [](uint32_t word, unsigned shift, unsigned bits) {
        return size_t{(word >> shift & ((1u << bits) - 1)) + 1};
    };
    const size_t bytes = field(words.b, 22, 10) * field(words.b, 12, 10) * field(words.b, 0, 12) *
                         (size_t{words.c} + 1);
    const uint32_t level = words.a >> 5 & 7;
    if (level == 1) caches.first_level = bytes;
    if (level == 2) caches.second_level = bytes;
}

Caches caches_of_leaf(Cpuid cpuid, uint32_t leaf) {
    // No processor has more; a leaf that is another one's may never say that it ends.
    constexpr uint32_t kMost = 16;
    Caches caches;
    for (uint32_t index = 0; index < kMost; ++index) {
        const CpuidWords words = cpuid(leaf, index);
        if ((words.a & 31) == 0) break;
        add_cache(words, caches);
    }
    return caches;
}

#ifdef AFD_OPS_X86
CpuidWords ask_processor(uint32_t leaf, uint32_t index) {
    CpuidWords words;
    // Refuses a leaf that is beyond the last one.
    if (__get_cpuid_count(leaf, index, &words.a, &words.b, &words.c, &words.d) == 0) return {};
    return words;
}
#endif

}  // namespace

Caches caches_of(Cpuid cpuid) {
    constexpr uint32_t kIntel = 4;
    constexpr uint32_t kAmd = 0x8000001d;
    constexpr uint32_t kAmdFirstLevel = 0x80000005;
    constexpr uint32_t kAmdSecondLevel = 0x80000006;
    Caches caches = caches_of_leaf(cpuid, kIntel);
    const auto fill = [&](const Caches& others) {
        if (caches.first_level == 0) caches.first_level = others.first_level;
        if (caches.second_level == 0) caches.second_level = others.second_level;
    };
    fill(caches_of_leaf(cpuid, kAmd));
    // Both in KiB.
    fill({size_t{cpuid(kAmdFirstLevel, 0).c >> 24} << 10,
          size_t{cpuid(kAmdSecondLevel, 0).c >> 16} << 10});
    fill(kSmallCaches);
    constexpr uint32_t kGenuineIntel = 0x756e6547;  // The first four letters of its name.
    caches.is_filled_by_second_level = cpuid(0, 0).b == kGenuineIntel;
    return caches;
}

const Caches& processor_caches() {
#ifdef AFD_OPS_X86
    static const Caches kCaches = caches_of(ask_processor);
#else
    static const Caches kCaches = kSmallCaches;
#endif
    return kCaches;
}

}  // namespace afd::ops::cpu
