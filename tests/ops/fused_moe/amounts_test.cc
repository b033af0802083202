// SPDX-License-Identifier: Apache-2.0
//
// Amounts of memory that do not mix, and notice overflow.
#include "ops/fused_moe/amounts.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace afd::ops {
namespace {

// Capacity and Count neither convert into each other nor compare, and the number of dispatchers
// enters once.
template <typename A, typename B>
concept Comparable = requires(A a, B b) {
    a < b;
};
static_assert(!std::is_convertible_v<Capacity, Count> && !std::is_convertible_v<Count, Capacity>);
static_assert(!std::is_convertible_v<size_t, Capacity> && !std::is_convertible_v<Count, size_t>);
static_assert(Comparable<Count, Count> && !Comparable<Count, Capacity>);
template <typename T>
concept MultipliesDispatchers = requires(T capacity) {
    capacity.of(uint64_t{2});
};
static_assert(MultipliesDispatchers<RankCapacity> && !MultipliesDispatchers<Capacity>);

TEST(Amounts, SumsAndProductsNoticeOverflowAndStaySo) {
    EXPECT_EQ(RankCapacity(300).of(4), Capacity(1200));
    EXPECT_EQ((Capacity(5) + Capacity(6)) * 3, Capacity(33));
    EXPECT_TRUE(fits(Count(33), Capacity(33)));
    EXPECT_FALSE(fits(Count(34), Capacity(33)));
    const Capacity half(uint64_t{1} << 62);
    EXPECT_FALSE(half.overflowed());
    EXPECT_EQ((half + (half * 1)).overflowed(), true);
    EXPECT_TRUE((half * 2).overflowed());
    EXPECT_TRUE((half * UINT64_MAX).overflowed());
    EXPECT_EQ(half * 0, Capacity(0));
    EXPECT_TRUE(((half * 2) + Capacity(1)).overflowed());
    EXPECT_TRUE((half * 2 * 1).overflowed());
    EXPECT_TRUE(Capacity(UINT64_MAX).overflowed());
    EXPECT_TRUE(bytes_of<float>(half).overflowed());
    EXPECT_FALSE(fits(Count(UINT64_MAX), Capacity(UINT64_MAX)));
    EXPECT_EQ((half * 2).text(), "more than 2^63");
    EXPECT_EQ(bytes_of<float>(Capacity(17)), Capacity(128));
}

}  // namespace
}  // namespace afd::ops
