// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/ffn_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace afd::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kDeadlineUs = 100;
constexpr uint64_t kActiveUs = 10000;

// What is ready, as ReadyScan lists it, and the scheduler that decides over it.
class Bench {
  public:
    Bench(FfnPolicy policy, uint32_t num_sessions, uint32_t num_micro_batches, uint32_t group = 1)
        : scheduler_({.policy = policy,
                      .num_sessions = num_sessions,
                      .num_micro_batches = num_micro_batches,
                      .deadline_us = kDeadlineUs,
                      .active_us = kActiveUs,
                      .sync_group_size = group}) {}

    void publish(uint32_t session, uint32_t micro_batch, int32_t layer_id) {
        ready_.push_back({session, micro_batch, layer_id, 1, next_order_++, now_us});
    }

    // Decides, removes what was taken, returns it as {session, micro_batch}.
    std::vector<std::pair<uint32_t, uint32_t>> decide(bool running = true) {
        std::vector<std::pair<uint32_t, uint32_t>> taken;
        const auto decision = scheduler_.decide(now_us, ready_, running);
        for (const ReadyDescriptor& descriptor : decision) {
            taken.emplace_back(descriptor.session, descriptor.micro_batch);
        }
        std::erase_if(ready_, [&](const ReadyDescriptor& ready) {
            return std::count(taken.begin(),
                              taken.end(),
                              std::pair(ready.session, ready.micro_batch)) != 0;
        });
        return taken;
    }

    // Makes sessions active without leaving anything ready.
    void warm_up(uint32_t num_sessions, uint32_t num_micro_batches) {
        for (uint32_t m = 0; m < num_micro_batches; ++m) {
            for (uint32_t s = 0; s < num_sessions; ++s) publish(s, m, 0);
        }
        while (!ready_.empty()) {
            decide();
            now_us += kDeadlineUs;
        }
    }

    FfnScheduler& scheduler() { return scheduler_; }
    bool empty() const { return ready_.empty(); }
    uint64_t now_us = 1000;

  private:
    FfnScheduler scheduler_;
    std::vector<ReadyDescriptor> ready_;
    uint64_t next_order_ = 0;
};

using Taken = std::pair<uint32_t, uint32_t>;

TEST(FfnScheduler, TakesNothingOnceItMustEnd) {
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        Bench bench(policy, 1, 1);
        bench.publish(0, 0, 0);
        EXPECT_THAT(bench.decide(false), IsEmpty());
    }
}

TEST(FfnScheduler, SleepsWithoutDeadlineWhenNothingIsReady) {
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        Bench bench(policy, 3, 2);
        bench.warm_up(3, 2);
        EXPECT_THAT(bench.decide(), IsEmpty());
        EXPECT_EQ(bench.scheduler().decide_again_us(), kNever);
    }
}

TEST(FfnSchedulerAny, TakesTheOldestOfEachSessionInOrderOfReadiness) {
    Bench bench(FfnPolicy::kAny, 3, 2);
    bench.publish(2, 1, 5);
    bench.publish(0, 0, 3);
    bench.publish(2, 0, 4);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{2, 1}, Taken{0, 0}));
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{2, 0}));
}

TEST(FfnSchedulerGather, WaitsForActiveSessionsOnlyUpToTheDeadline) {
    Bench bench(FfnPolicy::kGather, 3, 2);
    bench.warm_up(2, 1);  // Session 2 never dispatched: nobody waits for it.
    bench.publish(0, 0, 1);
    EXPECT_THAT(bench.decide(), IsEmpty());
    EXPECT_EQ(bench.scheduler().waits_for_session(), 1u);
    EXPECT_EQ(bench.scheduler().decide_again_us(), bench.now_us + kDeadlineUs);
    bench.now_us += kDeadlineUs - 1;
    EXPECT_THAT(bench.decide(), IsEmpty());
    bench.now_us += 1;
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 0}));
}

TEST(FfnSchedulerGather, GoesAtOnceWhenAllActiveSessionsAreReady) {
    Bench bench(FfnPolicy::kGather, 3, 2);
    bench.warm_up(2, 1);
    bench.publish(0, 0, 1);
    EXPECT_THAT(bench.decide(), IsEmpty());
    bench.publish(1, 1, 1);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 0}, Taken{1, 1}));
}

TEST(FfnSchedulerGather, StopsWaitingForASessionThatFellSilent) {
    Bench bench(FfnPolicy::kGather, 2, 1);
    bench.warm_up(2, 1);
    bench.now_us += kActiveUs + 1;
    bench.publish(0, 0, 1);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 0}));
}

TEST(FfnSchedulerGather, PrefersTheLayerOfTheOldest) {
    Bench bench(FfnPolicy::kGather, 2, 2);
    bench.warm_up(2, 2);
    bench.publish(0, 0, 7);
    bench.publish(1, 0, 3);
    bench.publish(1, 1, 7);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 0}, Taken{1, 1}));
    EXPECT_THAT(bench.decide(), IsEmpty());
    EXPECT_EQ(bench.scheduler().waits_for_session(), 0u);
}

TEST(FfnSchedulerGather, TakesAnOverdueDescriptorBeforeOneOfTheSameLayer) {
    Bench bench(FfnPolicy::kGather, 2, 2);
    bench.warm_up(2, 2);
    bench.publish(1, 0, 7);
    bench.publish(0, 0, 3);
    bench.now_us += kDeadlineUs;
    bench.publish(0, 1, 7);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{1, 0}, Taken{0, 0}));
}

TEST(FfnSchedulerGroups, LetsEachGroupGoOnItsOwn) {
    Bench bench(FfnPolicy::kGroups, 4, 1, 2);
    bench.warm_up(4, 1);
    bench.publish(0, 0, 1);
    bench.publish(2, 0, 1);
    bench.publish(3, 0, 1);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{2, 0}, Taken{3, 0}));
    EXPECT_THAT(bench.decide(), IsEmpty());
    EXPECT_EQ(bench.scheduler().waits_for_session(), 1u);
    bench.publish(1, 0, 9);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 0}, Taken{1, 0}));
}

TEST(FfnSchedulerGroups, KeepsTheLastShortGroup) {
    Bench bench(FfnPolicy::kGroups, 3, 1, 2);
    bench.warm_up(3, 1);
    bench.publish(2, 0, 1);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{2, 0}));
}

TEST(FfnSchedulerAll, TakesOneMicroBatchOfAllSessionsInTurn) {
    Bench bench(FfnPolicy::kAll, 2, 2);
    bench.publish(0, 0, 1);
    bench.publish(1, 0, 1);
    bench.publish(0, 1, 1);
    bench.publish(1, 1, 1);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 0}, Taken{1, 0}));
    EXPECT_EQ(bench.scheduler().polling_index(), 1u);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 1}, Taken{1, 1}));
    EXPECT_EQ(bench.scheduler().polling_index(), 0u);
}

TEST(FfnSchedulerAll, TakesWhatIsReadyAtTheDeadlineAndAdvances) {
    Bench bench(FfnPolicy::kAll, 2, 2);
    bench.warm_up(2, 2);
    ASSERT_EQ(bench.scheduler().polling_index(), 0u);
    bench.publish(1, 0, 1);
    EXPECT_THAT(bench.decide(), IsEmpty());
    EXPECT_EQ(bench.scheduler().waits_for_session(), 0u);
    bench.now_us = bench.scheduler().decide_again_us();
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{1, 0}));
    EXPECT_EQ(bench.scheduler().polling_index(), 1u);
}

// The deadlock that the rule "always advance" prevents: only micro-batch 1 is ever published while
// the turn is micro-batch 0's, whose sessions are active but wait for the results of 1.
TEST(FfnSchedulerAll, AdvancesEvenIfItsTurnHadNothing) {
    Bench bench(FfnPolicy::kAll, 2, 2);
    bench.warm_up(2, 2);
    bench.publish(0, 1, 1);
    bench.publish(1, 1, 1);
    EXPECT_THAT(bench.decide(), IsEmpty());
    bench.now_us = bench.scheduler().decide_again_us();
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 1}, Taken{1, 1}));
}

TEST(FfnSchedulerAll, PassesOverMicroBatchesThatNobodyUses) {
    Bench bench(FfnPolicy::kAll, 2, 8);
    bench.publish(0, 6, 1);
    EXPECT_THAT(bench.decide(), ElementsAre(Taken{0, 6}));
    EXPECT_EQ(bench.scheduler().polling_index(), 7u);
}

// Goal: whatever the sessions do, no descriptor waits for ever and no pass takes two of a session.
// Method: a simulation over a virtual clock; each session keeps up to M micro-batches in flight,
// pauses at random, session 0 dies half-way, time advances to what the scheduler asks for at most.
// Oracle: the age of every taken descriptor stays below a bound that holds for every policy: each
// of M turns, and each older descriptor of the session, may cost one deadline.
TEST(FfnScheduler, StarvesNoSessionUnderRandomLoad) {
    constexpr uint32_t kSessions = 5;
    constexpr uint32_t kMicroBatches = 3;
    constexpr uint64_t kPassUs = 10;
    constexpr uint64_t kBoundUs = (2 * kMicroBatches + 2) * (kDeadlineUs + kPassUs);
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        SCOPED_TRACE(std::string(name_of(policy)));
        std::mt19937 random(11);
        Bench bench(policy, kSessions, kMicroBatches, 2);
        std::map<Taken, uint64_t> published_us;
        uint64_t num_taken = 0;
        for (int step = 0; step < 20000; ++step) {
            for (uint32_t s = step > 10000 ? 1 : 0; s < kSessions; ++s) {
                const uint32_t m = static_cast<uint32_t>(random() % kMicroBatches);
                if (random() % 8 != 0 || published_us.count({s, m}) != 0) continue;
                published_us[{s, m}] = bench.now_us;
                bench.publish(s, m, static_cast<int32_t>(random() % 4));
            }
            std::vector<uint32_t> sessions;
            for (const Taken& taken : bench.decide()) {
                ASSERT_LE(bench.now_us - published_us.at(taken), kBoundUs);
                published_us.erase(taken);
                sessions.push_back(taken.first);
                ++num_taken;
            }
            std::sort(sessions.begin(), sessions.end());
            ASSERT_EQ(std::adjacent_find(sessions.begin(), sessions.end()), sessions.end());
            const uint64_t until_us = bench.scheduler().decide_again_us();
            ASSERT_TRUE(!sessions.empty() || bench.empty() || until_us != kNever);
            bench.now_us += kPassUs;
        }
        EXPECT_GT(num_taken, 1000u);
    }
}

}  // namespace
}  // namespace afd::schedule
