// SPDX-License-Identifier: Apache-2.0

// Goal: ItemShares gives every item once, to each task its share from the beginning and then what
// others have left, from the end. Method: tasks that ask in turns, or of which only one asks; that
// threads may ask at once is tests/threads/thread_pool_test.cc. Oracle: the rules of the header.

#include "ops/tensor/item_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace afd::ops {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using Ranges = std::vector<std::pair<size_t, size_t>>;

// What one task gets of everything.
Ranges all_of(ItemShares& shares, size_t task) {
    Ranges ranges;
    for (ItemRange range = shares.next(task); !range.empty(); range = shares.next(task)) {
        ranges.emplace_back(range.first, range.last);
    }
    return ranges;
}

TEST(ItemShares, ATaskGoesThroughItsShareAndThenTakesOver) {
    ItemShares shares(16, 1, 2);
    EXPECT_THAT(all_of(shares, 0),
                ElementsAre(std::pair(0, 4),
                            std::pair(4, 6),
                            std::pair(6, 7),
                            std::pair(7, 8),
                            // Of the other share, from its end.
                            std::pair(12, 16),
                            std::pair(10, 12),
                            std::pair(9, 10),
                            std::pair(8, 9)));
    EXPECT_TRUE(all_of(shares, 1).empty());
}

TEST(ItemShares, TheShareThatHasMostLeftIsHelped) {
    ItemShares shares(30, 10, 3);
    EXPECT_THAT(Ranges({{shares.next(1).first, 0}}), ElementsAre(std::pair(10, 0)));
    const ItemRange own = shares.next(2);
    EXPECT_EQ(own.first, 20u);
    EXPECT_EQ(shares.next(2).first, 0u);
    EXPECT_TRUE(shares.next(0).empty());
}

TEST(ItemShares, RangesHaveTheSmallestSizeButTheLast) {
    ItemShares shares(23, 5, 1);
    EXPECT_THAT(all_of(shares, 0),
                ElementsAre(std::pair(0, 12), std::pair(12, 18), std::pair(18, 23)));
    ItemShares rest(7, 5, 1);
    EXPECT_THAT(all_of(rest, 0), ElementsAre(std::pair(0, 5), std::pair(5, 7)));
}

TEST(ItemShares, EveryItemIsGivenOnce) {
    for (const size_t num_tasks : {1, 2, 3, 7, 64, 100}) {
        for (const size_t smallest : {1, 3, 50}) {
            for (size_t num_items = 0; num_items < 300; num_items += 1 + num_items / 9) {
                ItemShares shares(num_items, smallest, num_tasks);
                std::vector<int> times(num_items, 0);
                for (bool is_any_left = true; is_any_left;) {
                    is_any_left = false;
                    for (size_t task = num_tasks; task-- > 0;) {
                        const auto [first, last] = shares.next(task);
                        for (size_t item = first; item < last; ++item) ++times.at(item);
                        is_any_left |= first < last;
                    }
                }
                ASSERT_THAT(times, Each(1)) << num_items << " items, " << num_tasks << " tasks";
            }
        }
    }
}

TEST(ItemShares, WhatIsTooLittleForTwoThreadsStaysOnOne) {
    SerialParallel serial;
    Ranges ranges;
    const auto note = [&](size_t first, size_t last) { ranges.emplace_back(first, last); };
    run_shares(serial, 9, 1, note);
    run_shares(serial, 0, 1, note);
    EXPECT_THAT(ranges, ElementsAre(std::pair(0, 9), std::pair(0, 0)));
}

}  // namespace
}  // namespace afd::ops
