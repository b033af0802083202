// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/host_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config make_config(const std::string& attention_hosts, const std::string& ffn_hosts) {
    Config config;
    config.attention_workers = 2;
    config.ffn_workers = 5;
    config.attention_hosts = attention_hosts;
    config.ffn_hosts = ffn_hosts;
    config.pin = "none";
    return config;
}

TEST(HostPlan, IsLocalWithoutLists) {
    const HostPlan plan(make_config("", ""));
    EXPECT_TRUE(plan.is_local());
    EXPECT_EQ(plan.host_of(control::FFN, 4), "");
    EXPECT_EQ(plan.num_workers(control::FFN, ""), 5U);
    EXPECT_TRUE(HostPlan(make_config("local", "local,local")).is_local());
}

TEST(HostPlan, DealsWorkersOutInTurn) {
    const HostPlan plan(make_config("c", "local,b"));
    EXPECT_FALSE(plan.is_local());
    EXPECT_THAT(plan.names(), ElementsAre("b", "c"));
    EXPECT_EQ(plan.host_of(control::ATTENTION, 1), "c");
    EXPECT_EQ(plan.host_of(control::FFN, 0), "");
    EXPECT_EQ(plan.host_of(control::FFN, 3), "b");
    EXPECT_EQ(plan.num_workers(control::FFN, ""), 3U);
    EXPECT_EQ(plan.num_workers(control::FFN, "b"), 2U);
    EXPECT_EQ(plan.num_workers(control::ATTENTION, ""), 0U);
}

TEST(HostPlan, TellsEachHostOfItsWorkersAndOfTheTransports) {
    Config config = make_config("c", "local,b");
    config.instance = "one";
    config.ucx_transports = "rc,tcp";
    const auto shares = HostPlan(config).shares(config);
    ASSERT_EQ(shares.size(), 2U);
    for (const auto& [name, share] : shares) {
        EXPECT_EQ(share.instance(), "one");
        EXPECT_EQ(share.ucx_transports(), "rc,tcp");
        EXPECT_EQ(share.num_attention_workers(), name == "c" ? 2U : 0U);
        EXPECT_EQ(share.num_ffn_workers(), name == "b" ? 2U : 0U);
    }
}

// Cores are planned as if there were no others: oracle, plan_cpus() of the local workers.
TEST(HostPlan, SharesTheCoresOfThisHostBetweenItsWorkers) {
    const Config config = make_config("c", "b,local,b,b,local");
    const auto plan = HostPlan(config).plan_local_cpus(config, {0, 1, 2, 3, 4, 5, 6, 7});
    ASSERT_TRUE(plan.ok());
    ASSERT_EQ(plan.value().attention.size(), 2U);
    ASSERT_EQ(plan.value().ffn.size(), 5U);
    EXPECT_EQ(plan.value().ffn[1].num_threads, 4U);
    EXPECT_EQ(plan.value().ffn[4].num_threads, 4U);
    EXPECT_EQ(plan.value().ffn[0].num_threads, 1U) << "the other host's to plan";
    EXPECT_FALSE(plan.value().oversubscribed);
}

TEST(HostPlan, RefusesWhatIsNoListOfHosts) {
    for (const char* text : {",", "b,", "B", "b c", "ca"}) {
        const auto names = parse_hosts(text);
        ASSERT_FALSE(names.ok()) << text;
        EXPECT_THAT(names.error().message, HasSubstr("is no name of a host")) << text;
    }
    EXPECT_THAT(parse_hosts("b,leader").error().message, HasSubstr("write 'local'"));
}

}  // namespace
}  // namespace afd::daemon
