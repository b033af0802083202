// SPDX-License-Identifier: Apache-2.0
//
// What workers are told of the experts: enough, and no more than a message holds.
#include "daemon/placement/placement_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace afd::daemon {
namespace {

using schedule::RouterPlacement;
using testing::HasSubstr;

constexpr uint32_t kRanks = 4;

// Every expert on every rank. Session s uses replica (s + expert) % kRanks, counted through the
// layers.
schedule::ExpertPlacement placement_of(const std::vector<schedule::LayerExperts>& layers,
                                       uint32_t num_sessions) {
    std::vector<std::vector<std::vector<uint32_t>>> ranks;
    for (const auto& layer : layers)
        ranks.emplace_back(layer.num_experts(), std::vector{0U, 1U, 2U, 3U});
    auto placement = schedule::ExpertPlacement::from_ranks(ranks, kRanks).value();
    std::vector<uint16_t> choices;
    for (uint32_t session = 0; session < num_sessions; ++session) {
        for (uint32_t expert = 0; expert < placement.num_all_experts(); ++expert) {
            choices.push_back(static_cast<uint16_t>((session + expert) % kRanks));
        }
    }
    EXPECT_TRUE(placement.set_choices(std::move(choices)).ok());
    return placement;
}

Result<schedule::ExpertPlacement> read_table(const control::ExpertTable& table,
                                             const std::vector<schedule::LayerExperts>& layers,
                                             SessionRange sessions) {
    control::Welcome welcome;
    *welcome.mutable_experts() = table;
    return daemon::placement_of(welcome, layers, kRanks, sessions);
}

schedule::ExpertPlacement told(const control::ExpertTable& table,
                               const std::vector<schedule::LayerExperts>& layers,
                               SessionRange sessions) {
    auto placement = read_table(table, layers, sessions);
    EXPECT_TRUE(placement.ok()) << placement.error().message;
    return std::move(placement).value();
}

// Goal: each worker follows the choices that the placement has for it. Method: what three sessions
// and a rank that routes are told, read back. Oracle: the placement itself.
TEST(ExpertTable, EachWorkerIsToldWhatItFollows) {
    const std::vector<schedule::LayerExperts> layers = {{0, 1}, {5, 1}, {3, 0}};
    const schedule::ExpertPlacement placement = placement_of(layers, 3);
    const schedule::ExpertPlacement routing =
        told(to_wire(placement, RouterPlacement::kFfn, control::FFN, 1), layers, {0, 3});
    for (uint32_t session = 0; session < 3; ++session) {
        const schedule::ExpertPlacement own =
            told(to_wire(placement, RouterPlacement::kAttention, control::ATTENTION, session),
                 layers,
                 {session, 1});
        for (uint32_t layer = 0; layer < layers.size(); ++layer) {
            for (uint32_t expert = 0; expert < layers[layer].num_experts(); ++expert) {
                const schedule::ExpertReplica chosen = placement.choose(layer, expert, session);
                EXPECT_EQ(own.choose(layer, expert, session), chosen);
                EXPECT_EQ(routing.choose(layer, expert, session), chosen);
            }
        }
    }
    EXPECT_EQ(to_wire(placement, RouterPlacement::kAttention, control::FFN, 1).choices_size(), 0)
        << "a rank that does not route asks for no session's choice";
}

// Goal: a worker that asks for a session's choice finds it. Method: choices of other sessions, of
// fewer, and of numbers that no session has. Oracle: the error.
TEST(ExpertTable, WithoutAllChoicesThatTheWorkerFollowsIsRefused) {
    const std::vector<schedule::LayerExperts> layers = {{4, 0}};
    const schedule::ExpertPlacement placement = placement_of(layers, 3);
    const auto refuses = [&](const control::ExpertTable& table, SessionRange sessions) {
        const auto placed = read_table(table, layers, sessions);
        return !placed.ok() && placed.error().code == Code::kDataLoss;
    };
    control::ExpertTable one =
        to_wire(placement, RouterPlacement::kAttention, control::ATTENTION, 1);
    EXPECT_FALSE(refuses(one, {1, 1}));
    EXPECT_TRUE(refuses(one, {0, 1}));
    EXPECT_TRUE(refuses(one, {2, 1}));
    EXPECT_TRUE(refuses(one, {0, 3})) << "an FFN worker";
    one.set_first_session(UINT32_MAX);
    EXPECT_TRUE(refuses(one, {1, 1}));
    EXPECT_TRUE(refuses(one, {0, 1}));
    control::ExpertTable all = to_wire(placement, RouterPlacement::kFfn, control::FFN, 0);
    EXPECT_FALSE(refuses(all, {0, 3}));
    EXPECT_TRUE(refuses(all, {0, 4}));
    all.set_first_session(1);
    EXPECT_TRUE(refuses(all, {0, 3}));
    all.clear_choices();
    EXPECT_FALSE(refuses(all, {0, 3})) << "a rank that does not route";
}

// Goal: the largest instances can be told. Method: 1,024 sessions and 23,040 experts. Oracle: the
// bytes of a session's table; that ranks that would have to be told all choices are refused, with
// what to change.
TEST(ExpertTable, IsSmallForASessionAndRefusedWhereItIsNot) {
    const std::vector<schedule::LayerExperts> layers(90, {256, 0});
    const schedule::ExpertPlacement placement = placement_of(layers, 1024);
    const auto table = to_wire(placement, RouterPlacement::kAttention, control::ATTENTION, 1023);
    EXPECT_LT(table.ByteSizeLong(), size_t{1} << 20);
    EXPECT_TRUE(check_table_bytes(placement, RouterPlacement::kAttention).ok());
    const Result<> refused = check_table_bytes(placement, RouterPlacement::kFfn);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("router = 'ffn'"));
    EXPECT_THAT(refused.error().message, HasSubstr("use fewer attention workers"));
}

}  // namespace
}  // namespace afd::daemon
