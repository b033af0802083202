// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/voided_rounds.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

control::VoidRequest void_request(uint32_t rank, uint32_t micro_batch, int32_t round) {
    control::VoidRequest request;
    request.set_rank(rank);
    request.set_micro_batch(micro_batch);
    request.set_round(round);
    return request;
}

// Goal: what a process has not heard is never granted, and what was granted is heard until a
// process is ready. Oracle: what each process of a rank is told, and when the rank is open.
TEST(VoidedRounds, AreClosedFromWhereAProcessHasHeardThemToItsEnd) {
    VoidedRounds rounds;
    EXPECT_TRUE(rounds.is_open(0)) << "nobody has executed anything yet";
    EXPECT_EQ(rounds.tell(0).rounds_size(), 0);
    EXPECT_FALSE(rounds.is_open(0));
    EXPECT_TRUE(rounds.is_open(1)) << "another rank";
    rounds.reopen(0);
    ASSERT_TRUE(rounds.is_open(0));
    rounds.note(3, void_request(0, 1, 7));
    ASSERT_EQ(rounds.tell(0).rounds_size(), 1);
    EXPECT_FALSE(rounds.is_open(0));

    rounds.reopen(0);
    rounds.note(4, void_request(0, 0, 9));
    const control::Voided told = rounds.tell(0);
    ASSERT_EQ(told.rounds_size(), 2) << "the process before may have acknowledged nothing";
    EXPECT_EQ(told.rounds(0).session(), 3U);
    EXPECT_EQ(told.rounds(0).micro_batch(), 1U);
    EXPECT_EQ(told.rounds(0).round(), 7);
    EXPECT_EQ(told.rounds(1).session(), 4U);

    rounds.forget(0);
    EXPECT_FALSE(rounds.is_open(0));
    rounds.reopen(0);
    EXPECT_EQ(rounds.tell(0).rounds_size(), 0) << "a process was ready";
}

// Who is ready executes, whether it has asked or not.
TEST(VoidedRounds, AreClosedWhereAProcessIsReady) {
    VoidedRounds rounds;
    rounds.forget(0);
    EXPECT_FALSE(rounds.is_open(0));
}

}  // namespace
}  // namespace afd::daemon
