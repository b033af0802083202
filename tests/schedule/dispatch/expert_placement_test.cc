// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/expert_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "schedule/layout/geometry.h"

namespace afd::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Layer 0 dense, layers 1 and 2 with 7 routed experts and one shared.
ExpertPlacement placement_on(uint32_t num_ranks) {
    const std::vector<LayerExperts> layers = {{0, 1}, {7, 1}, {7, 1}};
    return ExpertPlacement::round_robin(layers, num_ranks).value();
}

TEST(ExpertPlacement, DealsRoutedExpertsToTheRanksInTurn) {
    const ExpertPlacement placement = placement_on(2);
    for (uint32_t e = 0; e < 7; ++e) {
        EXPECT_THAT(placement.replicas(1, e),
                    ElementsAre(ExpertReplica{e % 2, static_cast<int32_t>(e / 2)}));
    }
    // Rank 0 has four routed experts, rank 1 three; the shared one has the same id on both.
    EXPECT_THAT(placement.replicas(1, 7), ElementsAre(ExpertReplica{0, 4}, ExpertReplica{1, 4}));
    EXPECT_EQ(placement.num_local_experts_per_layer(0), 5u);
    EXPECT_EQ(placement.num_local_experts_per_layer(1), 5u);
}

TEST(ExpertPlacement, ReplicatesADenseLayerOnEveryRank) {
    const ExpertPlacement placement = placement_on(3);
    EXPECT_EQ(placement.num_experts(0), 1u);
    EXPECT_THAT(placement.replicas(0, 0),
                ElementsAre(ExpertReplica{0, 0}, ExpertReplica{1, 0}, ExpertReplica{2, 0}));
}

TEST(ExpertPlacement, GivesEachSessionItsReplica) {
    const ExpertPlacement placement = placement_on(3);
    for (uint32_t session = 0; session < 7; ++session) {
        EXPECT_EQ(placement.choose(0, 0, session).rank, session % 3);
        EXPECT_EQ(placement.choose(1, 4, session).rank, 1u);
    }
}

// The session's own replica where that does, else the first that does: here without ranks that an
// offer leaves out.
TEST(ExpertPlacement, ChoosesAmongTheReplicasThatWillDo) {
    const ExpertPlacement placement = placement_on(3);
    const auto choose_without =
        [&](uint32_t left_out, uint32_t layer, uint32_t expert, uint32_t session) {
            return placement.choose_where(
                layer, expert, session, [&](const ExpertReplica& replica) {
                    return !is_left_out(left_out, replica.rank);
                });
        };
    for (uint32_t session = 0; session < 7; ++session) {
        EXPECT_EQ(choose_without(0, 0, 0, session), placement.choose(0, 0, session));
        const uint32_t rank = choose_without(1u << 1, 0, 0, session)->rank;
        EXPECT_EQ(rank, session % 3 == 1 ? 0u : session % 3);
        EXPECT_EQ(choose_without(0b011, 0, 0, session)->rank, 2u);
        EXPECT_EQ(choose_without(1u << 1, 1, 4, session), std::nullopt)
            << "that expert is on rank 1 alone";
    }
    EXPECT_FALSE(is_left_out(0xffffffff, kLeftOutRanksMax)) << "an offer has no bit for it";
}

// Goal: the inverse is exact. Method: all ranks, layers and ids, some out of range. Oracle: a rank
// holds an id if and only if held_experts lists it, and each expert is listed where replicas say.
TEST(ExpertPlacement, HoldsExactlyWhatItMustLoad) {
    for (const uint32_t num_ranks : {1u, 2u, 3u, 9u}) {
        const ExpertPlacement placement = placement_on(num_ranks);
        for (uint32_t rank = 0; rank < num_ranks; ++rank) {
            std::set<std::pair<int32_t, int32_t>> listed;
            for (const HeldExpert& local : placement.held_experts(rank)) {
                listed.insert({static_cast<int32_t>(local.layer_id), local.local_id});
                EXPECT_THAT(placement.replicas(local.layer_id, local.expert),
                            ::testing::Contains(ExpertReplica{rank, local.local_id}));
            }
            EXPECT_EQ(listed.size(), placement.held_experts(rank).size());
            for (int32_t layer = -1; layer <= 3; ++layer) {
                for (int32_t id = -1; id <= 9; ++id) {
                    EXPECT_EQ(placement.holds(rank, layer, id), listed.count({layer, id}) == 1)
                        << "rank " << rank << ", layer " << layer << ", id " << id;
                }
                EXPECT_FALSE(placement.holds(rank, layer, 2147483647));
            }
        }
    }
}

TEST(ExpertPlacement, KeepsOneIdForARankWithoutRoutedExperts) {
    const std::vector<LayerExperts> layers = {{1, 0}};
    const ExpertPlacement placement = ExpertPlacement::round_robin(layers, 2).value();
    EXPECT_EQ(placement.num_local_experts_per_layer(1), 1u);
    EXPECT_TRUE(placement.held_experts(1).empty());
    EXPECT_FALSE(placement.holds(1, 0, 0));
}

TEST(ExpertPlacement, TakesAnyTable) {
    const ExpertPlacement placement =
        ExpertPlacement::from_table({{{{1, 3}}, {{0, 0}, {1, 0}}}}, 2).value();
    EXPECT_EQ(placement.num_local_experts_per_layer(1), 4u);
    EXPECT_EQ(placement.choose(0, 1, 5), (ExpertReplica{1, 0}));
    EXPECT_FALSE(placement.holds(1, 0, 1));
}

void expect_refused(const Result<ExpertPlacement>& result, const char* words) {
    ASSERT_FALSE(result.ok()) << words;
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr(words));
}

TEST(ExpertPlacement, RefusesTablesThatCannotBeServed) {
    expect_refused(ExpertPlacement::from_table({{{}}}, 1), "layer 0, expert 0: no rank holds it");
    expect_refused(ExpertPlacement::from_table({{{{2, 0}}}}, 2), "rank 2 is not below 2");
    expect_refused(ExpertPlacement::from_table({{{{0, -1}}}}, 2), "local id -1");
    expect_refused(ExpertPlacement::from_table({{{{0, 1}}, {{0, 1}}}}, 2),
                   "expert 1: local id 1 of rank 0 is given twice");
    expect_refused(ExpertPlacement::from_table({{}}, 2), "the layer has no expert");
    expect_refused(ExpertPlacement::from_table({}, 2), "0 layers on 2 ranks");
    const std::vector<LayerExperts> layers = {{4, 0}};
    expect_refused(ExpertPlacement::round_robin(layers, 0), "1 layers on 0 ranks");
}

TEST(ExpertPlacement, FromRanksCountsLocalIdsOnEachRank) {
    const auto placement = ExpertPlacement::from_ranks({{{0}, {1, 0}, {1}}, {{1}}}, 2);
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    const std::vector<ExpertReplica> both = {{1, 0}, {0, 1}};
    const auto replicas = placement.value().replicas(0, 1);
    EXPECT_EQ(std::vector<ExpertReplica>(replicas.begin(), replicas.end()), both);
    EXPECT_EQ(placement.value().replicas(0, 2)[0], (ExpertReplica{1, 1}));
    EXPECT_EQ(placement.value().replicas(1, 0)[0], (ExpertReplica{1, 0}));
    const auto twice = ExpertPlacement::from_ranks({{{1, 1}}}, 2);
    EXPECT_EQ(twice.error().message, "expert placement: layer 0, expert 0: rank 1 is given twice");
    const auto outside = ExpertPlacement::from_ranks({{{0}, {2}}}, 2);
    EXPECT_EQ(outside.error().message,
              "expert placement: layer 0, expert 1: rank 2 is not below 2");
}

TEST(ExpertPlacement, ChoicesReplaceTheRuleOfSessionsModuloReplicas) {
    auto placement = ExpertPlacement::from_ranks({{{0, 1}, {1}}, {{0, 1}}}, 2);
    ASSERT_TRUE(placement.ok());
    EXPECT_EQ(placement.value().choose(0, 0, 1).rank, 1u);
    EXPECT_EQ(placement.value().set_choices({0, 0}).error().message,
              "replica choice: 2 choices for 3 experts of each session");
    EXPECT_EQ(placement.value().set_choices({0, 1, 0}).error().message,
              "replica choice: session 0 chooses replica 1 of 1 of expert 1, counted through the "
              "layers");
    ASSERT_TRUE(placement.value().set_choices({1, 0, 0, 0, 0, 1}).ok());
    EXPECT_EQ(placement.value().choose(0, 0, 0).rank, 1u);
    EXPECT_EQ(placement.value().choose(1, 0, 0).rank, 0u);
    EXPECT_EQ(placement.value().choose(0, 0, 1).rank, 0u);
    EXPECT_EQ(placement.value().choose(0, 1, 1).rank, 1u);
    EXPECT_EQ(placement.value().choose(1, 0, 1).rank, 1u);
}

TEST(ExpertPlacement, ChoicesOfOneSessionAloneAreEnoughForIt) {
    auto placement = ExpertPlacement::from_ranks({{{0, 1}, {1}}, {{0, 1}}}, 2);
    ASSERT_TRUE(placement.ok());
    EXPECT_EQ(placement.value().set_choices({0, 1, 0}, 7).error().message,
              "replica choice: session 7 chooses replica 1 of 1 of expert 1, counted through the "
              "layers");
    ASSERT_TRUE(placement.value().set_choices({1, 0, 0}, 7).ok());
    EXPECT_EQ(placement.value().choose(0, 0, 7).rank, 1u);
    EXPECT_EQ(placement.value().choose(1, 0, 7).rank, 0u);
}

}  // namespace
}  // namespace afd::schedule
