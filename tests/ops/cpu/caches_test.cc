// SPDX-License-Identifier: Apache-2.0

#include "ops/cpu/caches.h"

#include <gtest/gtest.h>

#include <cstring>

namespace afd::ops::cpu {
namespace {

// One cache in the words of leaf 4 and 0x8000001D.
CpuidWords cache(uint32_t type, uint32_t level, uint32_t ways, uint32_t sets) {
    constexpr uint32_t kLineBytes = 64;
    return {.a = type | level << 5, .b = (ways - 1) << 22 | (kLineBytes - 1), .c = sets - 1};
}

TEST(Caches, AreThoseOfLeaf4) {
    const Caches caches = caches_of([](uint32_t leaf, uint32_t index) -> CpuidWords {
        if (leaf != 4) return {};
        switch (index) {
            case 0:
                return cache(1, 1, 12, 64);
            case 1:  // Instructions.
                return cache(2, 1, 8, 64);
            case 2:
                return cache(3, 2, 16, 2048);
            case 3:
                return cache(3, 3, 15, 114688);
            default:
                return {};
        }
    });
    EXPECT_EQ(caches, (Caches{size_t{48} << 10, size_t{2} << 20}));
}

TEST(Caches, AreThoseOfTheLeafOfAmd) {
    const Caches caches = caches_of([](uint32_t leaf, uint32_t index) -> CpuidWords {
        if (leaf != 0x8000001d) return {};
        if (index == 0) return cache(1, 1, 8, 64);
        if (index == 1) return cache(2, 1, 8, 64);
        if (index == 2) return cache(3, 2, 8, 2048);
        return {};
    });
    EXPECT_EQ(caches, (Caches{size_t{32} << 10, size_t{1} << 20}));
}

TEST(Caches, AreThoseOfTheOldLeavesWhereAVirtualMachineHasNoOthers) {
    const Caches caches = caches_of([](uint32_t leaf, uint32_t /*index*/) -> CpuidWords {
        if (leaf == 0x80000005) return {.c = 48u << 24};
        if (leaf == 0x80000006) return {.c = 1024u << 16};
        return {};
    });
    EXPECT_EQ(caches, (Caches{size_t{48} << 10, size_t{1} << 20}));
}

TEST(Caches, AreSmallOnesWhereNobodySays) {
    const Caches caches = caches_of([](uint32_t, uint32_t) { return CpuidWords{}; });
    EXPECT_EQ(caches, kSmallCaches);
}

TEST(Caches, OfIntelAreFilledByTheSecondLevel) {
    const auto of = [](const char* name) {
        static uint32_t word = 0;
        std::memcpy(&word, name, sizeof word);
        return caches_of([](uint32_t leaf, uint32_t /*index*/) -> CpuidWords {
            return leaf == 0 ? CpuidWords{.a = 13, .b = word} : CpuidWords{};
        });
    };
    EXPECT_TRUE(of("GenuineIntel").is_filled_by_second_level);
    EXPECT_FALSE(of("AuthenticAMD").is_filled_by_second_level);
}

TEST(Caches, EndWithALeafThatDoesNot) {
    const Caches caches = caches_of([](uint32_t, uint32_t) { return cache(1, 1, 8, 64); });
    EXPECT_EQ(caches.first_level, size_t{32} << 10);
}

TEST(Caches, OfThisProcessorAreKnown) {
    const Caches& caches = processor_caches();
    EXPECT_GE(caches.first_level, size_t{8} << 10);
    EXPECT_LE(caches.first_level, size_t{1} << 20);
    EXPECT_GE(caches.second_level, caches.first_level);
}

}  // namespace
}  // namespace afd::ops::cpu
