// SPDX-License-Identifier: Apache-2.0
#include "threads/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "ops/tensor/item_shares.h"

namespace afd::threads {
namespace {

// Goal: every task of every run is executed exactly once, and what it wrote is visible after run().
// Method: many runs of changing size, with pools that spin, that give their core away and that
// sleep at once, so that helpers come late, sleep, and meet the next run. Oracle: plain
// (non-atomic) cells, each written by its task and read by the caller; a thread sanitizer sees a
// missing order.
TEST(ThreadPool, RunsEveryTaskOnceAndShowsItsWrites) {
    constexpr std::pair<uint32_t, bool> kWaits[] = {{0, false}, {50, false}, {50, true}};
    for (const auto& [spin_us, yields] : kWaits) {
        for (const unsigned num_threads : {1U, 2U, 4U}) {
            ThreadPool pool(num_threads, spin_us, yields, {});
            std::vector<uint32_t> cells(97, 0);
            for (uint32_t round = 1; round <= 2000; ++round) {
                const size_t num_tasks = round % 7 == 0 ? 1 : 1 + round % cells.size();
                pool.run(num_tasks, [&](size_t task, unsigned thread) {
                    ASSERT_LT(thread, num_threads);
                    cells[task] += round;
                });
                uint64_t sum = 0;
                for (size_t task = 0; task < cells.size(); ++task) {
                    ASSERT_EQ(cells[task], task < num_tasks ? round : 0U)
                        << "round " << round << ", task " << task;
                    sum += cells[task];
                    cells[task] = 0;
                }
                ASSERT_EQ(sum, uint64_t{round} * num_tasks);
            }
        }
    }
}

TEST(ThreadPool, NeverGivesOneThreadIndexToTwoTasksAtOnce) {
    ThreadPool pool(3, 0, false, {});
    std::vector<int> busy(3, 0);
    for (int round = 0; round < 500; ++round) {
        pool.run(64, [&](size_t, unsigned thread) {
            EXPECT_EQ(busy[thread], 0);
            busy[thread] = 1;
            busy[thread] = 0;
        });
    }
}

// Goal: threads that share items out (ops/tensor/item_shares.h) do each of them once, and what they
// wrote is visible after the run. Method: many runs, also with more threads than cores, so that
// shares are taken over. Oracle: plain cells, as above.
TEST(ThreadPool, SharesItemsOutOnce) {
    for (const unsigned num_threads : {2U, 4U}) {
        ThreadPool pool(num_threads, 50, true, {});
        std::vector<uint32_t> cells(301, 0);
        for (uint32_t round = 1; round <= 2000; ++round) {
            const size_t num_items = 1 + round % cells.size();
            ops::run_shares(pool, num_items, 1 + round % 5, [&](size_t first, size_t last) {
                for (size_t item = first; item < last; ++item) cells[item] += round;
            });
            for (size_t item = 0; item < cells.size(); ++item) {
                ASSERT_EQ(std::exchange(cells[item], 0), item < num_items ? round : 0U)
                    << "round " << round << ", item " << item;
            }
        }
    }
}

TEST(ThreadPool, EndsWhileItsHelpersSleep) {
    for (int i = 0; i < 20; ++i) {
        ThreadPool pool(4, 0, false, {});
        pool.run(8, [](size_t, unsigned) {});
    }
}

// Goal: threads run on their cores. Method: all threads of a pool on one core that this process may
// use. Oracle: the kernel's word in every task.
TEST(ThreadPool, PinsEveryThreadToItsCore) {
    std::thread([] {
        const int core = sched_getcpu();
        ASSERT_GE(core, 0);
        const std::array cpus = {static_cast<uint32_t>(core)};
        ThreadPool pool(3, 0, true, cpus);
        ASSERT_TRUE(pool.pinned().ok()) << pool.pinned().error().message;
        pool.run(64, [&](size_t, unsigned) { EXPECT_EQ(sched_getcpu(), core); });
    }).join();
}

// Goal: a core that is not there is named, also beyond the 1024 bytes of a cpu_set_t, and the pool
// works.
TEST(ThreadPool, NamesTheCoreThatItDoesNotGet) {
    std::thread([] {
        const std::array cpus = {8191U};
        ThreadPool pool(2, 0, true, cpus);
        ASSERT_FALSE(pool.pinned().ok());
        EXPECT_EQ(pool.pinned().error().message,
                  "a thread cannot be pinned to core 8191: Invalid argument; it runs where it may");
        std::vector<int> done(10, 0);
        pool.run(done.size(), [&](size_t task, unsigned) { done[task] = 1; });
        EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), 10);
    }).join();
}

}  // namespace
}  // namespace afd::threads
