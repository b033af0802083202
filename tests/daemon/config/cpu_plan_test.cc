// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/cpu_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Config make_config(uint64_t attention_workers, uint64_t ffn_workers, const std::string& pin) {
    Config config;
    config.attention_workers = attention_workers;
    config.ffn_workers = ffn_workers;
    config.pin = pin;
    return config;
}

std::vector<uint32_t> cores(uint32_t count) {
    std::vector<uint32_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

TEST(CpuPlan, SharesTheCoresBetweenTheSides) {
    const auto plan = plan_cpus(make_config(2, 1, "none"), cores(8));
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().attention[0].num_threads, 2);
    EXPECT_EQ(plan.value().ffn[0].num_threads, 4);
    EXPECT_FALSE(plan.value().oversubscribed);
    EXPECT_THAT(plan.value().attention[0].cpus, IsEmpty());
}

TEST(CpuPlan, GivesEveryWorkerAThreadAndSaysThatTheyAreTooMany) {
    const auto plan = plan_cpus(make_config(2, 1, "auto"), cores(2));
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().attention[1].num_threads, 1);
    EXPECT_TRUE(plan.value().oversubscribed);
    EXPECT_THAT(plan.value().attention[0].cpus, IsEmpty());
}

TEST(CpuPlan, ColocatedWorkersShareAllCores) {
    Config config = make_config(2, 3, "none");
    config.topology = Topology::kColocated;
    const auto plan = plan_cpus(config, cores(8));
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().attention[0].num_threads, 4);
    EXPECT_THAT(plan.value().ffn, IsEmpty());
}

TEST(CpuPlan, AutoDealsConsecutiveAllowedCores) {
    const auto plan = plan_cpus(make_config(2, 1, "auto"), {2, 3, 6, 7});
    ASSERT_TRUE(plan.ok());
    EXPECT_THAT(plan.value().attention[0].cpus, ElementsAre(2));
    EXPECT_THAT(plan.value().attention[1].cpus, ElementsAre(3));
    EXPECT_THAT(plan.value().ffn[0].cpus, ElementsAre(6, 7));
}

TEST(CpuPlan, OneWorkerOfEachSideTakeTurnsOnAllCores) {
    for (const std::vector<uint32_t>& allowed : {std::vector<uint32_t>{4, 6}, cores(16)}) {
        const auto plan = plan_cpus(make_config(1, 1, "auto"), allowed);
        ASSERT_TRUE(plan.ok());
        EXPECT_TRUE(plan.value().oversubscribed);
        EXPECT_TRUE(plan.value().in_turns);
        for (const WorkerCpus& worker : {plan.value().attention[0], plan.value().ffn[0]}) {
            EXPECT_EQ(worker.num_threads, allowed.size());
            EXPECT_EQ(worker.cpus, allowed);
        }
    }
}

// What was chosen by hand keeps the sides apart.
TEST(CpuPlan, OnlyWhoChoseNothingTakesTurnsOnManyCores) {
    std::vector<Config> chosen(6, make_config(1, 1, "auto"));
    chosen[0].pin = "0-7;8-15";
    chosen[1].attention_threads = 8;
    chosen[2].ffn_threads = 8;
    chosen[3].micro_batches = 2;
    chosen[4].spawn = false;
    chosen[5].ffn_hosts = "local";
    for (size_t i = 0; i < chosen.size(); ++i) {
        const auto plan = plan_cpus(chosen[i], cores(16));
        ASSERT_TRUE(plan.ok()) << i;
        EXPECT_FALSE(plan.value().in_turns) << i;
        EXPECT_FALSE(plan.value().oversubscribed) << i;
        EXPECT_EQ(plan.value().attention[0].num_threads, 8) << i;
        EXPECT_EQ(plan.value().ffn[0].num_threads, 8) << i;
    }
}

TEST(CpuPlan, ChosenThreadsKeepEachSideToItsOwnCore) {
    Config config = make_config(1, 1, "auto");
    config.attention_threads = 1;
    config.ffn_threads = 1;
    const auto plan = plan_cpus(config, cores(2));
    ASSERT_TRUE(plan.ok());
    EXPECT_FALSE(plan.value().oversubscribed);
    EXPECT_FALSE(plan.value().in_turns);
    EXPECT_THAT(plan.value().attention[0].cpus, ElementsAre(0));
    EXPECT_THAT(plan.value().ffn[0].cpus, ElementsAre(1));
}

TEST(CpuPlan, ListsGoToWorkersInOrder) {
    const auto plan = plan_cpus(make_config(1, 1, "0-1;3,2"), cores(4));
    ASSERT_TRUE(plan.ok());
    EXPECT_THAT(plan.value().attention[0].cpus, ElementsAre(0, 1));
    EXPECT_THAT(plan.value().ffn[0].cpus, ElementsAre(3, 2));
}

// Goal: who lists cores gets a thread for each, and is told where two share one. Oracle: by hand.
TEST(CpuPlan, ListsDecideHowManyThreadsThereAre) {
    const auto apart = plan_cpus(make_config(1, 1, "0-3;4-15"), cores(16));
    ASSERT_TRUE(apart.ok());
    EXPECT_EQ(apart.value().attention[0].num_threads, 4);
    EXPECT_EQ(apart.value().ffn[0].num_threads, 12);
    EXPECT_FALSE(apart.value().oversubscribed);
    const auto shared = plan_cpus(make_config(1, 1, "0-1;0-1,1"), cores(16));
    ASSERT_TRUE(shared.ok());
    EXPECT_EQ(shared.value().attention[0].num_threads, 2);
    EXPECT_EQ(shared.value().ffn[0].num_threads, 2);
    EXPECT_TRUE(shared.value().oversubscribed);
    EXPECT_FALSE(shared.value().in_turns);
    const auto two_cores = plan_cpus(make_config(1, 1, "0;1"), cores(2));
    ASSERT_TRUE(two_cores.ok());
    EXPECT_FALSE(two_cores.value().oversubscribed || two_cores.value().in_turns);
    // Chosen threads stay as many.
    Config config = make_config(1, 1, "0-1;2-5");
    config.attention_threads = 3;
    const auto chosen = plan_cpus(config, cores(16));
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen.value().attention[0].num_threads, 3);
    EXPECT_EQ(chosen.value().ffn[0].num_threads, 4);
    EXPECT_TRUE(chosen.value().oversubscribed);
}

// Goal: threads that nobody chose do not use up the quota of the control group, and containers that
// do not see each other do not pin theirs to the same cores. Oracle: shares of whole cores.
TEST(CpuPlan, AQuotaCountsAsSoManyCores) {
    const auto one_of_each = plan_cpus(make_config(1, 1, "auto"), cores(64), 5.5);
    ASSERT_TRUE(one_of_each.ok());
    EXPECT_FALSE(one_of_each.value().in_turns || one_of_each.value().oversubscribed);
    for (const WorkerCpus& worker :
         {one_of_each.value().attention[0], one_of_each.value().ffn[0]}) {
        EXPECT_EQ(worker.num_threads, 2);
        EXPECT_THAT(worker.cpus, IsEmpty());
    }
    const auto three = plan_cpus(make_config(2, 1, "auto"), cores(64), 8);
    ASSERT_TRUE(three.ok());
    EXPECT_EQ(three.value().attention[1].num_threads, 2);
    EXPECT_EQ(three.value().ffn[0].num_threads, 4);
    const auto listed = plan_cpus(make_config(1, 1, "0-3;4-15"), cores(16), 2);
    ASSERT_TRUE(listed.ok());
    EXPECT_EQ(listed.value().ffn[0].num_threads, 12);
    EXPECT_EQ(listed.value().ffn[0].cpus.size(), 12);
    Config config = make_config(1, 1, "auto");
    config.attention_threads = 8;
    config.ffn_threads = 8;
    const auto chosen = plan_cpus(config, cores(64), 2);
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen.value().attention[0].num_threads, 8);
    EXPECT_FALSE(chosen.value().oversubscribed) << "they have a core each";
}

TEST(CpuPlan, AQuotaIsNamedWhereItLeavesLess) {
    const Config config = make_config(1, 1, "auto");
    EXPECT_EQ(quota_text(config, cores(4), 0), "");
    EXPECT_EQ(quota_text(config, cores(4), 4), "");
    EXPECT_EQ(quota_text(make_config(1, 1, "0;1"), cores(4), 2), "");
    EXPECT_THAT(quota_text(config, cores(64), 3.5),
                HasSubstr("time for 3.5 of 64 allowed cores: data threads whose number is not "
                          "chosen are dealt out as for 3, and none is pinned"));
}

TEST(CpuPlan, WrongListsSayWhy) {
    EXPECT_THAT(plan_cpus(make_config(2, 1, "0;1"), cores(4)).error().message,
                HasSubstr("2 lists for 3 workers"));
    EXPECT_THAT(plan_cpus(make_config(1, 1, "0;9"), cores(4)).error().message,
                HasSubstr("core 9 does not exist"));
    for (const char* text : {"3-1", "a", "1,,2", "1-2-3", "-1", "99999"}) {
        EXPECT_THAT(parse_cpu_lists(text).error().message, HasSubstr("is not a list of cores"))
            << text;
    }
}

}  // namespace
}  // namespace afd::daemon
