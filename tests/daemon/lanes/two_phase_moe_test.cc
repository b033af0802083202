// SPDX-License-Identifier: Apache-2.0
//
// Goal: the MoE layer in two phases gives the bits of the local composition, whatever the number of
// FFN workers and sessions and the size of a block; nothing is lost when a rank dies between any
// two steps; no access races.
// Method: sessions and ranks are threads over one mapping (a thread sanitizer sees all of them);
// another thread makes the segments, as afdd does; and over ToyNetwork, whose workers share no
// memory and lose their last messages when they die. Random rows and routings, masked slots
// included. Oracle: local_result of tests/daemon/lanes/random_moe.h.

#include <gtest/gtest.h>

#include "tests/daemon/lanes/two_phase_session.h"

namespace afd::daemon {
namespace {

struct Shape {
    uint32_t num_sessions;
    uint32_t num_ranks;
    uint32_t block_tokens;
    uint32_t steps_per_life;
    bool has_shared_stage = false;
    TwoPhaseWorld::Over over = TwoPhaseWorld::Over::kSharedMemory;
};

constexpr auto kToy = TwoPhaseWorld::Over::kToyNetwork;

class TwoPhaseMoe : public testing::TestWithParam<Shape> {};

TEST_P(TwoPhaseMoe, GivesTheBitsOfTheLocalComposition) {
    const Shape shape = GetParam();
    const schedule::ExpertPlacement placement =
        placement_of(shape.num_ranks, shape.has_shared_stage ? 0 : 1);
    TwoPhaseWorld world(shape.num_sessions, shape.num_ranks, kPerLayer, UINT64_MAX, shape.over);
    std::vector<std::unique_ptr<TwoPhaseRank>> ranks;
    for (uint32_t rank = 0; rank < shape.num_ranks; ++rank) {
        ranks.push_back(make_rank(world, placement, rank, shape.steps_per_life));
    }
    std::vector<std::thread> sessions;
    for (uint32_t s = 0; s < shape.num_sessions; ++s) {
        sessions.emplace_back([&, s] {
            TwoPhaseSession session(
                world, placement, s, shape.block_tokens, shape.has_shared_stage);
            for (uint32_t i = 0; i < 40; ++i) {
                const Call call(s * 100000 + i, kTwoPhaseTokensMax);
                ops::MoeTicket ticket = session.start(call);
                while (session.step(ticket)) {
                }
                const auto finished = session.finish(std::move(ticket), call);
                ASSERT_TRUE(finished.ok()) << finished.error().message;
                ASSERT_EQ(session.bits(call), local_result(call)) << "session " << s << ", " << i;
            }
            EXPECT_TRUE(session.idle());
        });
    }
    for (std::thread& session : sessions) session.join();
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         TwoPhaseMoe,
                         testing::Values(Shape{1, 1, 100, 0},
                                         Shape{1, 2, 8, 0},
                                         Shape{3, 2, 5, 0},
                                         Shape{2, 3, 16, 0},
                                         // Lives end between any two steps.
                                         Shape{1, 1, 8, 3},
                                         Shape{2, 2, 16, 5},
                                         Shape{1, 2, 8, 9},
                                         Shape{1, 2, 8, 0, true},
                                         Shape{2, 2, 20, 5, true},
                                         Shape{2, 3, 16, 0, false, kToy},
                                         Shape{2, 2, 16, 5, false, kToy}),
                         [](const auto& shape) {
                             return "A" + std::to_string(shape.param.num_sessions) + "F" +
                                    std::to_string(shape.param.num_ranks) + "B" +
                                    std::to_string(shape.param.block_tokens) + "Life" +
                                    std::to_string(shape.param.steps_per_life) +
                                    (shape.param.has_shared_stage ? "SharedStage" : "") +
                                    (shape.param.over == kToy ? "Toy" : "");
                         });

}  // namespace
}  // namespace afd::daemon
