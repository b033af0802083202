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
