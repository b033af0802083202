// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/two_phase_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace afd::daemon {
namespace {

using ::testing::ElementsAre;

// Goal: rows go to the replicas that the configuration chose, expert by expert, as they do through
// the windows. Method: two experts on both of two ranks, in two layers; the choices are not those
// of session mod replicas, and differ by session, layer and expert. Oracle: the counts by hand.
TEST(TwoPhaseOperators, SendsToTheReplicasThatWereChosen) {
    const std::vector<std::vector<std::vector<uint32_t>>> ranks(2, {{0, 1}, {0, 1}});
    auto placement = schedule::ExpertPlacement::from_ranks(ranks, 2);
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    // [session, layer, expert]
    ASSERT_TRUE(placement.value().set_choices({1, 0, 0, 0, 1, 1, 0, 1}).ok());
    // Expert 0 three times, expert 1 once.
    const std::vector<int32_t> ids = {0, 0, 1, 0};
    const std::vector<float> weights(ids.size(), 1.0F);
    const std::vector<ops::Bf16> x(4 * 8);

    ops::SerialParallel serial;
    // The rows of both experts at rank 0, then at rank 1.
    const auto counts = [&](uint32_t session, uint32_t layer) {
        TwoPhaseOperators operators({.session = session,
                                     .num_ranks = 2,
                                     .hidden = 8,
                                     .top_k = 1,
                                     .num_tokens_max = 4,
                                     .block_tokens = 4},
                                    placement.value(),
                                    nullptr,
                                    serial);
        operators.begin({.x = ops::make_rows(x.data(), 4, 8),
                         .layer_id = layer,
                         .num_tokens = 4,
                         .top_k = 1,
                         .topk_ids = ids.data(),
                         .topk_weights = weights.data()});
        std::vector<int32_t> all;
        for (const uint32_t rank : {0U, 1U}) {
            const auto of_rank = operators.send_counts(rank);
            all.insert(all.end(), of_rank.begin(), of_rank.end());
        }
        return all;
    };
    EXPECT_THAT(counts(0, 0), ElementsAre(0, 1, 3, 0));
    EXPECT_THAT(counts(0, 1), ElementsAre(3, 1, 0, 0));
    EXPECT_THAT(counts(1, 0), ElementsAre(0, 0, 3, 1));
    EXPECT_THAT(counts(1, 1), ElementsAre(3, 0, 0, 1));
}

}  // namespace
}  // namespace afd::daemon
