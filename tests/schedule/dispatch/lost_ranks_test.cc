// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/lost_ranks.h"

#include <gtest/gtest.h>

namespace afd::schedule {
namespace {

// Three ranks. Expert 0 is on 0 and 1, expert 1 on 1 and 2, expert 2 on all.
ExpertPlacement placement() {
    return ExpertPlacement::from_ranks({{{0, 1}, {1, 2}, {0, 1, 2}}}, 3).value();
}

TEST(LostRanks, CanBeDoneWithoutWhileEveryExpertIsElsewhere) {
    const ExpertPlacement table = placement();
    LostRanks ranks(table, RouterPlacement::kAttention);
    EXPECT_FALSE(ranks.is_any());
    EXPECT_FALSE(ranks.can_do_without()) << "without whom?";
    ranks.set(0, true);
    EXPECT_TRUE(ranks.is_lost(0));
    EXPECT_TRUE(ranks.can_do_without());
    ranks.set(2, true);
    EXPECT_TRUE(ranks.can_do_without()) << "rank 1 has all";
    ranks.set(1, true);
    EXPECT_FALSE(ranks.can_do_without());
    ranks.set(2, false);
    EXPECT_FALSE(ranks.can_do_without()) << "expert 0 is on 0 and 1 only";
    ranks.set(0, false);
    EXPECT_TRUE(ranks.can_do_without());
    ranks.set(1, false);
    EXPECT_FALSE(ranks.is_any());
}

TEST(LostRanks, CountsLossesAndIgnoresRanksThatThereAreNot) {
    const ExpertPlacement table = placement();
    LostRanks ranks(table, RouterPlacement::kAttention);
    ranks.set(1, true);
    ranks.set(1, false);
    ranks.set(1, true);
    EXPECT_EQ(ranks.num_losses(1), 2U);
    EXPECT_EQ(ranks.num_losses(0), 0U);
    ranks.set(3, true);
    EXPECT_TRUE(ranks.can_do_without());
}

// router = ffn: an offer can name the first ranks only.
TEST(LostRanks, WhereRanksRouteTheFirstOnesCanBeDoneWithout) {
    const uint32_t num_ranks = kLeftOutRanksMax + 1;
    const ExpertPlacement table =
        ExpertPlacement::from_ranks({{{0, kLeftOutRanksMax - 1, kLeftOutRanksMax}}}, num_ranks)
            .value();
    LostRanks ranks(table, RouterPlacement::kFfn);
    ranks.set(kLeftOutRanksMax - 1, true);
    EXPECT_TRUE(ranks.can_do_without());
    ranks.set(kLeftOutRanksMax, true);
    EXPECT_FALSE(ranks.can_do_without());
    LostRanks chosen_here(table, RouterPlacement::kAttention);
    chosen_here.set(kLeftOutRanksMax, true);
    EXPECT_TRUE(chosen_here.can_do_without());
}

}  // namespace
}  // namespace afd::schedule
