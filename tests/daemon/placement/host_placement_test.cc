// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/host_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/placement/placement_source.h"

namespace afd::daemon {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

const std::vector<std::string> kHosts = {"a", "b", "c", "a", "b", "c"};

TEST(SpreadReplicas, AreOnDifferentHosts) {
    for (const uint32_t num_replicas : {1U, 2U, 3U}) {
        for (const auto& ranks : spread_replicas(64, num_replicas, kHosts)) {
            std::set<std::string> hosts;
            for (const uint32_t rank : ranks) hosts.insert(kHosts[rank]);
            EXPECT_EQ(hosts.size(), num_replicas);
        }
    }
}

// With more of them than hosts, each rank at most once all the same.
TEST(SpreadReplicas, AreOnDifferentRanks) {
    for (const auto& ranks : spread_replicas(64, 5, kHosts)) {
        const std::set<uint32_t> different(ranks.begin(), ranks.end());
        EXPECT_EQ(different.size(), 5U);
    }
    EXPECT_THAT(spread_replicas(3, 1, std::vector<std::string>{""}), Each(ElementsAre(0U)));
}

// Goal: no rank has much more than others, nor gets much more than others when one is lost.
TEST(SpreadReplicas, AreEvenAlsoWithoutARank) {
    std::map<uint32_t, int> held;
    std::map<uint32_t, int> taken_over_from_0;
    for (const auto& ranks : spread_replicas(120, 2, kHosts)) {
        for (const uint32_t rank : ranks) ++held[rank];
        if (ranks[0] == 0) ++taken_over_from_0[ranks[1]];
    }
    for (uint32_t rank = 0; rank < 6; ++rank) EXPECT_NEAR(held[rank], 40, 8) << rank;
    EXPECT_EQ(taken_over_from_0.size(), 4U) << "all of the other hosts";
}

Config config_over(const std::string& attention_hosts, const std::string& ffn_hosts) {
    Config config;
    config.attention_workers = 3;
    config.ffn_workers = 3;
    config.attention_hosts = attention_hosts;
    config.ffn_hosts = ffn_hosts;
    config.expert_placement = "replicas:2";
    config.replica_choice = "host";
    return config;
}

// A session without the expert on its host goes by its number.
TEST(ChooseNearReplicas, UsesWhatTheOwnHostHas) {
    const Config config = config_over("local,b,d", "local,b,c");
    const std::vector<schedule::LayerExperts> layers = {{6, 1}};
    const auto placement = plan_placement(config, layers);
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    for (uint32_t expert = 0; expert < 7; ++expert) {
        const auto replicas = placement.value().replicas(0, expert);
        for (const uint32_t session : {0U, 1U}) {
            const bool has_own = std::ranges::any_of(
                replicas, [&](const auto& replica) { return replica.rank == session; });
            const uint32_t chosen = placement.value().choose(0, expert, session).rank;
            if (has_own) {
                EXPECT_EQ(chosen, session) << "expert " << expert;
            } else {
                EXPECT_EQ(chosen, replicas[session % replicas.size()].rank);
            }
        }
        EXPECT_EQ(placement.value().choose(0, expert, 2).rank, replicas[2 % replicas.size()].rank);
    }
}

}  // namespace
}  // namespace afd::daemon
