// SPDX-License-Identifier: Apache-2.0
//
// Goal: what ends a two-phase round early costs only that round. Cancelled ones give their memory
// back; a refusal, one that is deadly and bad counts come back as errors; a successor ends what its
// predecessor left open.
// Method: sessions and ranks as in two_phase_moe_test.cc. Oracle: the errors' words, and the bits
// of the rounds that come next, by local_result of tests/daemon/lanes/random_moe.h.

#include <gtest/gtest.h>

#include <cstring>

#include "schedule/layout/round.h"
#include "tests/daemon/lanes/two_phase_session.h"

namespace afd::daemon {
namespace {

// Goal: a round may be given up between any two of its steps. Method: 60 rounds, each cancelled
// after one more step than the last of its kind, while another session works. Oracle: the next
// round's bits; at the end no memory is left.
TEST(TwoPhaseCancel, GivesTheMemoryBackAndDisturbsNobody) {
    const schedule::ExpertPlacement placement = placement_of(2);
    TwoPhaseWorld world(2, 2, kPerLayer);
    {
        const auto first = make_rank(world, placement, 0);
        const auto second = make_rank(world, placement, 1);
        const auto run = [&](uint32_t s, bool cancels) {
            TwoPhaseSession session(world, placement, s, 8);
            for (uint32_t i = 0; i < 60; ++i) {
                const Call call(s * 100000 + i, kTwoPhaseTokensMax);
                ops::MoeTicket ticket = session.start(call);
                uint32_t num_steps = 0;
                bool is_cancelled = cancels && i % 2 == 0;
                while (!(is_cancelled && num_steps == i / 2 % 12) && session.step(ticket)) {
                    ++num_steps;
                }
                if (is_cancelled) continue;
                const auto finished = session.finish(std::move(ticket), call);
                ASSERT_TRUE(finished.ok()) << finished.error().message;
                ASSERT_EQ(session.bits(call), local_result(call)) << "session " << s << ", " << i;
            }
            EXPECT_TRUE(session.idle());
        };
        std::thread canceller([&] { run(0, true); });
        std::thread other([&] { run(1, false); });
        canceller.join();
        other.join();
        const uint64_t deadline_us = schedule::steady_now_us() + kPatienceUs;
        while (world.memory().live_bytes() > 0 && schedule::steady_now_us() < deadline_us) {
            std::this_thread::yield();
        }
        EXPECT_EQ(world.memory().live_bytes(), 0U);
    }
}

// Goal: a rank without memory refuses, and the session hears it instead of waiting. Oracle: the
// error's code and words; a round that fits has the right bits afterwards.
TEST(TwoPhaseRefusal, ComesBackAsAnErrorAndTheNextRoundGoesOn) {
    const schedule::ExpertPlacement placement = placement_of(2);
    TwoPhaseWorld world(1, 2, kPerLayer, 8000);
    const auto first = make_rank(world, placement, 0);
    const auto second = make_rank(world, placement, 1);
    TwoPhaseSession session(world, placement, 0, 16);
    uint32_t num_refused = 0;
    uint32_t num_served = 0;
    for (uint32_t i = 0; i < 40; ++i) {
        const Call call(i, kTwoPhaseTokensMax);
        ops::MoeTicket ticket = session.start(call);
        while (session.step(ticket)) {
        }
        const auto finished = session.finish(std::move(ticket), call);
        if (finished.ok()) {
            ++num_served;
            ASSERT_EQ(session.bits(call), local_result(call)) << i;
            continue;
        }
        ++num_refused;
        EXPECT_EQ(finished.error().code, Code::kResourceExhausted);
        EXPECT_EQ(finished.error().message,
                  "layer " + std::to_string(call.input.layer_id) + ": an FFN worker refused " +
                      std::to_string(call.input.num_tokens) +
                      " tokens in two phases: it has no memory for them, they killed it, afdd "
                      "did not answer it, or the connection to it ended");
    }
    EXPECT_GE(num_refused, 5U);
    EXPECT_GE(num_served, 5U);
}

// Goal: a round whose execution has killed three ranks is refused by the fourth (R11), and only it.
// Oracle: the session's error; the next round has the right bits.
TEST(TwoPhaseDeadly, RoundIsRefusedAndTheNextGoesOn) {
    const schedule::ExpertPlacement placement = placement_of(1);
    TwoPhaseWorld world(1, 1, kPerLayer);
    uint32_t seed = 0;
    while (Call(seed, kTwoPhaseTokensMax).input.num_tokens < 50) ++seed;
    const Call call(seed, kTwoPhaseTokensMax);
    TwoPhaseSession session(world, placement, 0, 16);
    ops::MoeTicket ticket = session.start(call);
    const auto predecessor =
        world.receiver(0, placement, two_phase_row_bytes(schedule::RowDtype::kBf16, kHidden));
    const int32_t round = predecessor->open_round(0, schedule::Order::kAcquire);
    ASSERT_NE(round, 0);
    for (int i = 0; i < 3; ++i) predecessor->start_block(0, round);

    const auto rank = make_rank(world, placement, 0);
    while (session.step(ticket)) {
    }
    const auto refused = session.finish(std::move(ticket), call);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted) << "so the windows are tried";
    EXPECT_NE(refused.error().message.find("refused"), std::string::npos)
        << refused.error().message;
    ticket = session.start(call);
    while (session.step(ticket)) {
    }
    ASSERT_TRUE(session.finish(std::move(ticket), call).ok());
    EXPECT_EQ(session.bits(call), local_result(call));
}

// Goal: a session's successor ends what its predecessor left open, and goes on (R10). Method: the
// predecessor's words stay after its offer, its grants, or some of its blocks.
TEST(TwoPhaseTakeover, ClosesTheRoundsOfThePredecessor) {
    const schedule::ExpertPlacement placement = placement_of(2);
    for (uint32_t num_steps = 0; num_steps < 6; ++num_steps) {
        TwoPhaseWorld world(1, 2, kPerLayer);
        const auto first = make_rank(world, placement, 0);
        const auto second = make_rank(world, placement, 1);
        uint32_t seed = 0;  // Of a call with blocks enough for the steps.
        while (Call(seed, kTwoPhaseTokensMax).input.num_tokens < 50) ++seed;
        const Call call(seed, kTwoPhaseTokensMax);
        TwoPhaseSession predecessor(world, placement, 0, 8);
        ops::MoeTicket ticket = predecessor.start(call);
        for (uint32_t i = 0; i < num_steps; ++i) ASSERT_TRUE(predecessor.step(ticket));

        TwoPhaseSession successor(world, placement, 0, 8);
        ops::MoeTicket next = successor.start(call);
        while (successor.step(next)) {
        }
        const auto finished = successor.finish(std::move(next), call);
        ASSERT_TRUE(finished.ok()) << finished.error().message;
        EXPECT_EQ(successor.bits(call), local_result(call)) << num_steps;
        EXPECT_TRUE(successor.idle());
        // The predecessor's objects end with the test; a dead process would store nothing more.
    }
}

// Goal: a session's counts are compared with what it offered, block by block; bad ones cost only
// its round. Method: a session that offers honestly and then lies about a block. Oracle: the rank
// withdraws its grant, and acknowledges once the round is closed.
TEST(TwoPhaseBadCounts, OfABlockEndTheRound) {
    const schedule::ExpertPlacement placement = placement_of(1);
    constexpr uint64_t kRowBytes = kHidden * sizeof(ops::Bf16);
    schedule::TwoPhaseOffer offer{1, 2, 3, std::vector<int32_t>(kPerLayer, 0)};
    offer.counts[2] = 4;
    for (const int32_t lie : {-1, 4, 5}) {
        TwoPhaseWorld world(1, 1, kPerLayer);
        const auto rank = make_rank(world, placement, 0);
        const auto sender = world.sender(0);
        const auto answers = [&](schedule::TwoPhaseSender::Answer wanted) {
            const uint64_t deadline_us = schedule::steady_now_us() + kPatienceUs;
            while (sender->answer(0, schedule::Order::kAcquire) != wanted) {
                if (schedule::steady_now_us() > deadline_us) return false;
                std::this_thread::yield();
            }
            return true;
        };
        const int32_t round = sender->begin();
        sender->offer(0, offer);
        ASSERT_TRUE(answers(schedule::TwoPhaseSender::Answer::kGranted));
        std::byte* receive =
            world.memory()
                .map({schedule::TwoPhaseSegment::kReceive, 0, 0, round},
                     schedule::two_phase_sizes(offer, {kRowBytes, kRowBytes}).receive_bytes,
                     schedule::Segment::Access::kReadWrite)
                .value();
        // 4 rows are what is left, but more than block_rows_max.
        std::memcpy(receive + 2 * sizeof(int32_t), &lie, sizeof(lie));
        sender->publish_sent(0, 1);
        EXPECT_TRUE(answers(schedule::TwoPhaseSender::Answer::kRefused)) << lie;
        EXPECT_EQ(sender->returned(0, 2, schedule::Order::kAcquire), 0U);
        sender->close();
        const uint64_t deadline_us = schedule::steady_now_us() + kPatienceUs;
        while (!sender->may_begin(schedule::Order::kAcquire)) {
            ASSERT_LT(schedule::steady_now_us(), deadline_us);
            std::this_thread::yield();
        }
    }
}

// A rank's part that is stepped by hand.
struct SteppedRank {
    SteppedRank(TwoPhaseWorld& of, const schedule::ExpertPlacement& placement)
        : world(of),
          table(shard(placement, 0)),
          experts(table, placement.num_local_experts_per_layer(0)),
          receiver(
              of.receiver(0, placement, two_phase_row_bytes(schedule::RowDtype::kBf16, kHidden))),
          part({.receiver = receiver.get(),
                .placement = &placement,
                .experts = &experts,
                .hidden = kHidden,
                .parallel = &serial,
                .port = &of.port(0)}) {}

    // Steps until it is so; false: it does not come to be.
    bool step_until(const std::function<bool()>& is_so) {
        const uint64_t deadline_us = schedule::steady_now_us() + kPatienceUs;
        while (!is_so()) {
            if (schedule::steady_now_us() > deadline_us) return false;
            WorkerCommand command;
            if (world.port(0).pop_command(command)) {
                part.on_segment(command);
            } else if (!part.advance()) {
                std::this_thread::yield();
            }
        }
        return true;
    }

    TwoPhaseWorld& world;
    ops::SerialParallel serial;
    ops::ExpertTable table;
    ops::GroupedExperts experts;
    std::unique_ptr<schedule::TwoPhaseReceiver> receiver;
    TwoPhaseExperts part;
};

// Goal: how far a rank is, it knows itself: whoever writes into its `returned` changes no block
// that it takes. Method: the word is spoilt after each block of three. Oracle: each block is
// computed once, and the word is right again after it.
TEST(TwoPhaseSpoiltWords, OfARanksProgressAreNotReadBack) {
    using Answer = schedule::TwoPhaseSender::Answer;
    const schedule::ExpertPlacement placement = placement_of(1);
    constexpr uint64_t kRowBytes = kHidden * sizeof(ops::Bf16);
    schedule::TwoPhaseOffer offer{1, 3, 1, std::vector<int32_t>(kPerLayer, 0)};
    offer.counts[2] = 3;
    for (const int32_t spoilt : {-1, 0, 3, 4, 1 << 30, schedule::kRoundMax}) {
        TwoPhaseWorld world(1, 1, kPerLayer);
        SteppedRank rank(world, placement);
        const auto sender = world.sender(0);
        const int32_t round = sender->begin();
        sender->offer(0, offer);
        ASSERT_TRUE(rank.step_until(
            [&] { return sender->answer(0, schedule::Order::kAcquire) == Answer::kGranted; }));
        std::byte* receive =
            world.memory()
                .map({schedule::TwoPhaseSegment::kReceive, 0, 0, round},
                     schedule::two_phase_sizes(offer, {kRowBytes, kRowBytes}).receive_bytes,
                     schedule::Segment::Access::kReadWrite)
                .value();
        for (size_t block = 0; block < 3; ++block) {
            const int32_t one = 1;
            std::memcpy(receive + (block * kPerLayer + 2) * sizeof(one), &one, sizeof(one));
        }
        sender->publish_combined(0, 3);
        for (uint32_t block = 0; block < 3; ++block) {
            sender->publish_sent(0, block + 1);
            ASSERT_TRUE(rank.step_until([&] { return rank.part.num_rows() == block + 1; }))
                << spoilt << ", block " << block;
            int32_t& returned = world.rank_words(0, 0).returned;
            EXPECT_EQ(schedule::observe(returned, schedule::Order::kAcquire),
                      static_cast<int32_t>(block) + 1);
            schedule::publish_release(returned, spoilt);
        }
        EXPECT_FALSE(rank.part.has_work(schedule::Order::kAcquire)) << spoilt;
        EXPECT_EQ(sender->answer(0, schedule::Order::kAcquire), Answer::kGranted);

        // A successor has only the word. What cannot be true ends the round, and nothing else.
        schedule::publish_release(world.rank_words(0, 0).returned, spoilt == 3 ? 4 : spoilt);
        if (spoilt == 0) continue;
        SteppedRank successor(world, placement);
        EXPECT_TRUE(successor.step_until([&] {
            return sender->answer(0, schedule::Order::kAcquire) == Answer::kRefused;
        })) << spoilt;
        sender->close();
        EXPECT_TRUE(
            successor.step_until([&] { return sender->may_begin(schedule::Order::kAcquire); }));
    }
}

}  // namespace
}  // namespace afd::daemon
