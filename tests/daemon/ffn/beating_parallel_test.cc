// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/beating_parallel.h"

#include <gtest/gtest.h>

#include <vector>

namespace afd::daemon {
namespace {

// Two threads of which this one plays both, in turns.
class TwoPlayed final : public ops::Parallel {
  public:
    unsigned num_threads() const override { return 2; }
    void run(size_t num_tasks, ops::FunctionRef<void(size_t, unsigned)> body) override {
        for (size_t task = 0; task < num_tasks; ++task) body(task, task % 2);
    }
};

// Oracle: the progress that others see within each task; and what the tasks were told.
TEST(BeatingParallel, BeatsWithEachTaskOfTheDataThread) {
    TwoPlayed threads;
    schedule::HeartbeatWords words{};
    BeatingParallel parallel(threads, schedule::Heartbeat(&words));
    EXPECT_EQ(parallel.num_threads(), 2U);
    std::vector<uint64_t> progress;
    parallel.run(6, [&](size_t task, unsigned thread) {
        EXPECT_EQ(thread, task % 2);
        progress.push_back(schedule::read_heartbeat(words).progress);
    });
    EXPECT_EQ(progress, (std::vector<uint64_t>{1, 1, 2, 2, 3, 3}));
}

}  // namespace
}  // namespace afd::daemon
