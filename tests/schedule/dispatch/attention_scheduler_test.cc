// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/attention_scheduler.h"

#include <gtest/gtest.h>

#include <vector>

namespace afd::schedule {
namespace {

using Policy = AttentionScheduler::Policy;
constexpr LaneState kIdle = LaneState::kIdle;
constexpr LaneState kPending = LaneState::kPending;
constexpr LaneState kReady = LaneState::kReady;

std::optional<uint32_t> take(AttentionScheduler& scheduler, const std::vector<LaneState>& lanes) {
    return scheduler.take(true, [&](uint32_t m) { return lanes[m]; });
}

TEST(AttentionScheduler, TakesTheFirstMicroBatchFirst) {
    AttentionScheduler scheduler(3, Policy::kInOrder);
    EXPECT_EQ(scheduler.micro_batch_id(), 2u);
    EXPECT_EQ(take(scheduler, {kReady, kReady, kReady}), 0u);
    EXPECT_EQ(scheduler.micro_batch_id(), 0u);
}

TEST(AttentionScheduler, WaitsForTheNextInStrictOrder) {
    AttentionScheduler scheduler(2, Policy::kInOrder);
    EXPECT_EQ(take(scheduler, {kPending, kReady}), std::nullopt);
    EXPECT_EQ(scheduler.micro_batch_id(), 1u);
    EXPECT_EQ(take(scheduler, {kReady, kReady}), 0u);
    EXPECT_EQ(take(scheduler, {kReady, kReady}), 1u);
    EXPECT_EQ(take(scheduler, {kReady, kReady}), 0u);
}

TEST(AttentionScheduler, SkipsIdleAndPendingLanesWithFirstReady) {
    AttentionScheduler scheduler(4, Policy::kFirstReady);
    EXPECT_EQ(take(scheduler, {kPending, kIdle, kReady, kReady}), 2u);
    EXPECT_EQ(take(scheduler, {kReady, kIdle, kReady, kReady}), 3u);
    EXPECT_EQ(take(scheduler, {kReady, kIdle, kReady, kReady}), 0u);
    EXPECT_EQ(take(scheduler, {kPending, kIdle, kIdle, kPending}), std::nullopt);
}

TEST(AttentionScheduler, TakesNothingOnceItMustEnd) {
    AttentionScheduler scheduler(2, Policy::kFirstReady);
    EXPECT_EQ(scheduler.take(false, [](uint32_t) { return kReady; }), std::nullopt);
    EXPECT_EQ(scheduler.micro_batch_id(), 1u);
}

}  // namespace
}  // namespace afd::schedule
