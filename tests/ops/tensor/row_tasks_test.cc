// SPDX-License-Identifier: Apache-2.0

// Goal: for_rows hands every row to one call, whatever the sizes and threads, and asks for threads
// only where there is work for them. Oracle: counting.

#include "ops/tensor/row_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

TEST(RowTasks, CoverEveryRowOnceOnAnyNumberOfThreads) {
    for (const unsigned num_threads : {1U, 2U, 3U, 8U}) {
        threads::ThreadPool parallel(num_threads);
        for (const size_t num_rows : {0UL, 1UL, 2UL, 7UL, 33UL, 512UL}) {
            for (const size_t row_elements : {0UL, 1UL, 1000UL, kElementsPerTask, 1UL << 20}) {
                std::vector<std::atomic<int>> calls(num_rows);
                for_rows(parallel,
                         num_rows,
                         row_elements,
                         [&](size_t first, size_t last, unsigned thread) {
                             EXPECT_LT(first, last);
                             EXPECT_LT(thread, num_threads);
                             for (size_t row = first; row < last; ++row) ++calls[row];
                         });
                for (size_t row = 0; row < num_rows; ++row) {
                    ASSERT_EQ(calls[row], 1) << "row " << row << " of " << num_rows << ", "
                                             << row_elements << " elements, " << num_threads;
                }
            }
        }
    }
}

TEST(RowTasks, ATaskIsWorthItsThreadAndThreadsGetAsMany) {
    constexpr size_t kHalf = kElementsPerTask / 2;
    EXPECT_EQ(num_row_tasks(3, kHalf, 2), 1U) << "less than two tasks";
    EXPECT_EQ(num_row_tasks(4, kHalf, 2), 2U);
    EXPECT_EQ(num_row_tasks(6, kHalf, 2), 2U) << "a third task would leave a thread idle";
    EXPECT_EQ(num_row_tasks(8, kHalf, 2), 4U);
    EXPECT_EQ(num_row_tasks(4, kHalf, 8), 2U) << "too little for all";
    EXPECT_EQ(num_row_tasks(2, 100 * kElementsPerTask, 8), 2U) << "no more tasks than rows";
    EXPECT_EQ(num_row_tasks(1000, kElementsPerTask, 1), 1U) << "one thread takes all at once";
}

}  // namespace
}  // namespace afd::ops
