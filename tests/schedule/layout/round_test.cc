// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <vector>

namespace afd::schedule {
namespace {

int32_t choose(int32_t previous, std::initializer_list<int32_t> standing) {
    return choose_round(previous, standing.size(), [&](int32_t round) {
        return std::any_of(standing.begin(), standing.end(), [&](int32_t flag) {
            return carries_round(flag, round);
        });
    });
}

TEST(Round, CountsFromOneAndWrapsToOne) {
    EXPECT_EQ(next_round(0), 1);
    EXPECT_EQ(next_round(1), 2);
    EXPECT_EQ(next_round(kRoundMax - 1), kRoundMax);
    EXPECT_EQ(next_round(kRoundMax), 1);
    EXPECT_EQ(next_round(-5), 1);
}

TEST(Round, IsTheNextNumberWhenNothingStands) {
    EXPECT_EQ(choose(0, {0, 0}), 1);
    EXPECT_EQ(choose(7, {7, 3}), 8);
}

TEST(Round, SkipsEveryNumberThatStands) {
    EXPECT_EQ(choose(7, {10, 8, 9}), 11);
    EXPECT_EQ(choose(kRoundMax - 1, {kRoundMax, 1, 2}), 3);
    EXPECT_EQ(choose(0, {2, 1, 0}), 3);
}

// Goal: a peer that stores in its words while a number is chosen holds up nobody. Method: it takes
// each number just before it is asked for. Oracle: the number of questions.
TEST(Round, ComesToAnEndAgainstAWriterThatTakesEachNumber) {
    int num_asked = 0;
    const int32_t round = choose_round(7, 3, [&](int32_t) { return ++num_asked > 0; });
    EXPECT_EQ(num_asked, 3);
    EXPECT_EQ(round, 11);
}

// A standing refusal of a round would read as the refusal of a new round of that number.
TEST(Round, SkipsNumbersThatStandAsRefusals) {
    EXPECT_EQ(choose(7, {refused_mark(8)}), 9);
    EXPECT_FALSE(carries_round(0, 1));
    EXPECT_TRUE(carries_round(refused_mark(kRoundMax), kRoundMax));
    // No round number, but a peer can store it. Constant: an overflow would not compile.
    constexpr int32_t kSmallest = std::numeric_limits<int32_t>::min();
    static_assert(refused_mark(kSmallest) == kSmallest && carries_round(kSmallest, kSmallest));
}

}  // namespace
}  // namespace afd::schedule
