// SPDX-License-Identifier: Apache-2.0
//
// Goal: the fused-MoE test matrix in two phases: every Experts part that FFN workers can run, every
// dtype of rows, either place of the shared experts and of the routing weights give the layer's
// exact output. Method: one session and two ranks, each a thread over one mapping, a thread that
// makes segments as afdd does; the cases of tests/ops/fused_moe/moe_matrix.h in blocks of 20
// tokens. Oracle: MatrixOracle, bit for bit.

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/daemon/lanes/remote_matrix.h"
#include "tests/daemon/lanes/two_phase_rank.h"

namespace afd::daemon {
namespace {

using ops::test::MatrixCase;

constexpr uint32_t kBlockTokens = 20;
constexpr size_t kStageTokens = 48;  // The shared stage goes by steps of its own.

std::unique_ptr<TwoPhaseRank> make_rank(TwoPhaseWorld& world,
                                        const RemoteCase& of,
                                        const schedule::ExpertPlacement& placement,
                                        uint32_t rank) {
    const auto part = std::make_shared<MatrixPart>(rank_part(of, placement, rank));
    return std::make_unique<TwoPhaseRank>(
        TwoPhaseRank::Setup{.world = &world,
                            .placement = &placement,
                            .rank = rank,
                            .hidden = ops::test::kMatrixHidden,
                            .dispatch_dtype = of.dispatch_dtype},
        [part, &of] { return of.pair.experts->make(part->shard.setup()); });
}

class TwoPhaseMatrix : public testing::TestWithParam<RemoteCase> {};

TEST_P(TwoPhaseMatrix, GivesTheBitsOfItsRowsAlone) {
    const RemoteCase& of = GetParam();
    const schedule::ExpertPlacement placement = matrix_placement(of);
    TwoPhaseWorld world(1, kMatrixRanks, ops::test::kMatrixPerLayer);
    const auto first = make_rank(world, of, placement, 0);
    const auto second = make_rank(world, of, placement, 1);

    ops::SerialParallel serial;
    const auto sender = world.sender(0);
    RemoteTwoPhase part({.session = 0,
                         .hidden = ops::test::kMatrixHidden,
                         .top_k = ops::test::kMatrixTopK,
                         .num_shared = of.num_dispatched_shared(),
                         .num_tokens_max = ops::test::kMatrixTokens,
                         .block_tokens = kBlockTokens,
                         .dispatch_dtype = of.dispatch_dtype},
                        {.sender = sender.get(), .placement = &placement, .parallel = &serial});
    const std::unique_ptr<MatrixPart> stage = shared_stage(of);
    ops::RemoteExperts remote(*of.pair.experts->capability);
    ops::FusedMoeConfig config = of.config();
    config.max_shared_tokens = kStageTokens;
    auto moe = ops::FusedMoe::compose(
        part, remote, config, serial, stage == nullptr ? nullptr : stage->experts.get());
    ASSERT_TRUE(moe.ok()) << moe.error().message;

    const ops::test::RandomMatrix x = ops::test::matrix_tokens();
    for (const MatrixCase& c : ops::test::matrix_cases()) {
        if (!of.takes(c)) continue;
        std::vector<ops::Bf16> out(c.num_tokens * ops::test::kMatrixHidden);
        const auto rows = ops::make_rows(out.data(), c.num_tokens, ops::test::kMatrixHidden);
        while (!moe.value().slot_free(0)) std::this_thread::yield();
        part.expect_output(rows);
        auto ticket = moe.value().start(of.input(c, x), 0);
        ASSERT_TRUE(ticket.ok()) << c.name() << ": " << ticket.error().message;
        const uint64_t deadline_us = schedule::steady_now_us() + 60'000'000;
        while (!moe.value().ready(ticket.value())) {
            ASSERT_LT(schedule::steady_now_us(), deadline_us) << c.name();
            if (part.advance()) continue;
            ASSERT_TRUE(moe.value().advance(ticket.value()).ok()) << c.name();
            std::this_thread::yield();
        }
        const auto finished = moe.value().finish(std::move(ticket).value(), rows);
        ASSERT_TRUE(finished.ok()) << c.name() << ": " << finished.error().message;
        ASSERT_EQ(out, matrix_expected(of, c)) << c.name();
    }
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         TwoPhaseMatrix,
                         testing::ValuesIn(remote_cases("afd_two_phase")),
                         remote_case_name);

}  // namespace
}  // namespace afd::daemon
