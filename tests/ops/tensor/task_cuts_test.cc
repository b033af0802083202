// SPDX-License-Identifier: Apache-2.0

// Goal: TaskCuts gives every item to exactly one task, large tasks first and small ones last.
// Method: ranges of many counts, bounds and numbers of threads. Oracle: the rules of the header.

#include "ops/tensor/task_cuts.h"

#include <gtest/gtest.h>

#include <vector>

namespace afd::ops {
namespace {

std::vector<size_t> sizes_of(const TaskCuts& cuts) {
    std::vector<size_t> sizes;
    for (size_t task = 0; task < cuts.num_tasks(); ++task) {
        sizes.push_back(cuts.range(task).last - cuts.range(task).first);
    }
    return sizes;
}

TEST(TaskCuts, EveryItemBelongsToOneTask) {
    for (size_t num_items = 0; num_items < 200; ++num_items) {
        for (const unsigned num_threads : {1U, 2U, 3U, 7U, 64U}) {
            for (const size_t smallest : {1U, 3U, 50U}) {
                const TaskCuts cuts(num_items, smallest, num_threads, smallest + 13);
                size_t next = 0;
                for (size_t task = 0; task < cuts.num_tasks(); ++task) {
                    const auto [first, last] = cuts.range(task);
                    ASSERT_EQ(first, next) << num_items << " items, task " << task;
                    ASSERT_LT(first, last) << num_items << " items, task " << task;
                    next = last;
                }
                ASSERT_EQ(next, num_items) << num_threads << " threads, from " << smallest;
            }
        }
    }
}

TEST(TaskCuts, EachRoundOfTheThreadsTakesHalfOfWhatIsLeft) {
    EXPECT_EQ(sizes_of(TaskCuts(64, 1, 2)),
              (std::vector<size_t>{16, 16, 8, 8, 4, 4, 2, 2, 1, 1, 1, 1}));
    EXPECT_EQ(sizes_of(TaskCuts(21, 1, 2)), (std::vector<size_t>{6, 6, 3, 3, 1, 1, 1}));
}

TEST(TaskCuts, TasksKeepToTheirBoundsButTheLast) {
    EXPECT_EQ(sizes_of(TaskCuts(64, 5, 2)), (std::vector<size_t>{16, 16, 8, 8, 5, 5, 5, 1}));
    EXPECT_EQ(sizes_of(TaskCuts(32, 1, 2, 4)),
              (std::vector<size_t>{4, 4, 4, 4, 4, 4, 2, 2, 1, 1, 1, 1}));
    EXPECT_EQ(sizes_of(TaskCuts(3, 5, 2, 8)), (std::vector<size_t>{3}));
}

TEST(TaskCuts, OneThreadHasOneTask) {
    EXPECT_EQ(sizes_of(TaskCuts(64, 1, 1, 4)), (std::vector<size_t>{64}));
    EXPECT_TRUE(sizes_of(TaskCuts(0, 1, 1, 4)).empty());
    EXPECT_TRUE(sizes_of(TaskCuts(0, 1, 2, 4)).empty());
}

}  // namespace
}  // namespace afd::ops
