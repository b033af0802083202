// SPDX-License-Identifier: Apache-2.0
//
// Two-phase rounds over UCX (R17): a session and a rank, which is a thread, over TCP on loopback.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "schedule/two_phase/two_phase_receiver.h"
#include "schedule/two_phase/two_phase_sender.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/schedule/ucx/ucx_network.h"

namespace afd::schedule {
namespace {

using Answer = TwoPhaseSender::Answer;

constexpr uint32_t kExperts = 4;  // Of each of two ranks (small_geometry()).
constexpr uint64_t kRowBytes = 8192;
// A block of 40 rows is more than a message brings.
constexpr TwoPhaseCall kCall{.num_tokens = 80, .block_tokens = 20, .selected_expert_num = 2};
constexpr TwoPhaseRowBytes kRows{kRowBytes, kRowBytes};

const ExpertPlacement& placement() {
    static const ExpertPlacement placed =
        ExpertPlacement::round_robin(std::vector<LayerExperts>(2, LayerExperts{2 * kExperts, 0}), 2)
            .value();
    return placed;
}

TwoPhaseReceiver make_receiver(TwoPhaseReturnTransport& transport) {
    return {transport, placement(), {.num_experts = kExperts, .row_bytes = kRows, .call = kCall}};
}

void yield() {
    std::this_thread::yield();
}

void await(const std::function<bool()>& holds, const std::function<void()>& turn = yield) {
    const uint64_t deadline_us = steady_now_us() + 30'000'000;
    while (!holds()) {
        ASSERT_LT(steady_now_us(), deadline_us);
        turn();
    }
}

// A rank that adds one to each byte.
class Rank {
  public:
    explicit Rank(TwoPhaseReturnTransport& transport) : receiver_(make_receiver(transport)) {}

    // A step, if there is one. The rank has nothing to do with a round that it was refused.
    void step() {
        if (round_ == 0) {
            round_ = receiver_.open_round(0, Order::kAcquire);
            if (round_ != 0 && !receiver_.is_closed(0, round_, Order::kAcquire)) open();
            return;
        }
        if (receiver_.is_closed(0, round_, Order::kAcquire)) {
            receiver_.close(0, round_);
            receiver_.acknowledge(0, std::exchange(round_, 0));
        } else if (receiver_.sent(0, offer_.num_blocks, Order::kAcquire) > num_returned_ &&
                   num_returned_ < kTwoPhaseReturnBlocks +
                                       receiver_.combined(0, offer_.num_blocks, Order::kAcquire)) {
            return_block();
        }
    }
    bool has_round() const { return round_ != 0; }

  private:
    void open() {
        ASSERT_TRUE(receiver_.copy_offer(0, offer_).ok());
        memory_ = receiver_.open(0, round_, two_phase_sizes(offer_, kRows)).value();
        grants_.resize(kExperts);
        std::exclusive_scan(
            offer_.counts.begin(), offer_.counts.end(), grants_.begin(), int64_t{0});
        num_returned_ = 0;
        done_ = grants_;
        receiver_.grant(0, round_, grants_);
    }
    void return_block() {
        std::array<int32_t, kExperts> counts;
        std::memcpy(
            counts.data(), memory_.received + num_returned_ * sizeof(counts), sizeof(counts));
        const std::byte* rows =
            memory_.received + two_phase_rows_offset(offer_.num_blocks, kExperts);
        const uint64_t first =
            two_phase_return_offset(num_returned_, offer_.block_rows_max, kRowBytes);
        uint64_t at = first;
        for (size_t e = 0; e < kExperts; ++e) {
            const std::byte* from = rows + static_cast<uint64_t>(done_[e]) * kRowBytes;
            const uint64_t bytes = static_cast<uint64_t>(counts[e]) * kRowBytes;
            for (uint64_t i = 0; i < bytes; ++i) {
                memory_.sent[at + i] = std::byte(std::to_integer<unsigned>(from[i]) + 1);
            }
            at += bytes;
            done_[e] += counts[e];
        }
        receiver_.put(0, first, at - first);
        receiver_.publish_returned(0, ++num_returned_);
    }

    TwoPhaseReceiver receiver_;
    int32_t round_ = 0;
    uint32_t num_returned_ = 0;
    TwoPhaseOffer offer_;
    TwoPhaseRoundMemory memory_;
    std::vector<int64_t> grants_;
    std::vector<int64_t> done_;
};

// A session's round with rank 0, of random blocks whose rows have random bytes.
class Call {
  public:
    Call(TwoPhaseSender& sender, std::mt19937& random) : sender_(sender), random_(random) {
        offer_.layer_id = 1;
        offer_.num_blocks = 1 + random() % 4;
        offer_.counts.resize(kExperts);
        for (uint32_t block = 0; block < offer_.num_blocks; ++block) {
            uint32_t rows = 0;
            for (size_t e = 0; e < kExperts; ++e) {
                counts_[block][e] = static_cast<int32_t>(random() % 11);
                offer_.counts[e] += counts_[block][e];
                rows += static_cast<uint32_t>(counts_[block][e]);
            }
            offer_.block_rows_max = std::max(offer_.block_rows_max, rows);
        }
    }

    // Whether it was not refused. Results that are not its own are failures.
    bool run(const std::function<void()>& turn) {
        await([&] { return sender_.may_begin(Order::kAcquire); }, turn);
        sender_.begin();
        sender_.offer(0, offer_);
        await([&] { return sender_.answer(0, Order::kAcquire) != Answer::kPending; }, turn);
        bool is_whole = sender_.answer(0, Order::kAcquire) == Answer::kGranted;
        if (is_whole) open();
        uint32_t num_sent = 0;
        for (uint32_t block = 0; is_whole && block < offer_.num_blocks; ++block) {
            while (num_sent < std::min(offer_.num_blocks, block + sender_.blocks_ahead())) {
                send(num_sent++);
            }
            await(
                [&] {
                    return is_refused() ||
                           sender_.returned(0, offer_.num_blocks, Order::kAcquire) > block;
                },
                turn);
            is_whole = !is_refused();
            if (!is_whole) break;
            EXPECT_TRUE(has_results(block)) << "block " << block;
            sender_.publish_combined(0, block + 1);
        }
        sender_.close();
        return is_whole;
    }

  private:
    bool is_refused() const { return sender_.answer(0, Order::kAcquire) == Answer::kRefused; }

    void open() {
        std::vector<int64_t> grants(kExperts);
        ASSERT_TRUE(sender_.copy_grants(0, offer_, grants).ok());
        done_ = grants;
        memory_ = sender_.open(0, two_phase_sizes(offer_, kRows)).value();
    }
    void send(uint32_t block) {
        const auto& counts = counts_[block];
        const uint64_t counts_at = block * sizeof(counts);
        std::memcpy(memory_.sent + counts_at, counts.data(), sizeof(counts));
        sender_.put(0, counts_at, sizeof(counts));
        for (size_t e = 0; e < kExperts; ++e) {
            const uint64_t at = two_phase_rows_offset(offer_.num_blocks, kExperts) +
                                static_cast<uint64_t>(done_[e]) * kRowBytes;
            const uint64_t bytes = static_cast<uint64_t>(counts[e]) * kRowBytes;
            for (uint64_t i = 0; i < bytes; ++i) memory_.sent[at + i] = std::byte(random_());
            sent_[block].insert(sent_[block].end(), memory_.sent + at, memory_.sent + at + bytes);
            if (bytes > 0) sender_.put(0, at, bytes);
            done_[e] += counts[e];
        }
        sender_.publish_sent(0, block + 1);
    }
    bool has_results(uint32_t block) const {
        const std::byte* results =
            memory_.received + two_phase_return_offset(block, offer_.block_rows_max, kRowBytes);
        return std::equal(sent_[block].begin(), sent_[block].end(), results, [](auto a, auto b) {
            return std::byte(std::to_integer<unsigned>(a) + 1) == b;
        });
    }

    TwoPhaseSender& sender_;
    std::mt19937& random_;
    TwoPhaseOffer offer_;
    std::array<std::array<int32_t, kExperts>, 4> counts_{};
    std::array<std::vector<std::byte>, 4> sent_;
    std::vector<int64_t> done_;
    TwoPhaseRoundMemory memory_;
};

void await_connection(const UcxDispatch& dispatch) {
    await([&] { return dispatch.descriptor_flag(0, 0) == 0 && dispatch.links()[0].is_open; });
}

// Goal: a round ends with the results of its own rows or is refused, and another may follow,
// whatever connection breaks when. Method: random rounds, with a rank that is a thread of its own;
// then the connection fails amid each, or before it, at either end. Oracle: the bytes; without a
// failure no round is refused, and behind every failure there is one that is whole.
TEST(UcxRounds, EndWithTheirOwnResultsOrAreRefused) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto dispatch = network.dispatch(0);
    const auto of_rank = returns->two_phase().value();
    const auto of_session = dispatch->two_phase().value();
    std::atomic<bool> is_over{false};
    std::thread working([&] {
        Rank rank(*of_rank);
        // Relaxed: it orders nothing.
        while (!is_over.load(std::memory_order_relaxed) || rank.has_round()) {
            rank.step();
            std::this_thread::yield();
        }
    });
    await_connection(*dispatch);
    TwoPhaseSender sender(*of_session);
    std::mt19937 random(7);
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(Call(sender, random).run(yield));
    int num_refused = 0;
    std::mt19937 faults(8);
    for (int i = 0; i < 40; ++i) {
        UcxEnd& breaks = i % 2 == 0 ? dispatch->end() : returns->end();
        // Turns until it does.
        auto num_turns = static_cast<int>(i % 4 == 0 ? 0 : 1 + faults() % 50);
        const auto turn = [&] {
            if (--num_turns == 0) breaks.fail_connection(0);
            yield();
        };
        if (num_turns == 0) breaks.fail_connection(0);
        if (!Call(sender, random).run(turn)) ++num_refused;
        await([&] {
            await_connection(*dispatch);
            return Call(sender, random).run(yield);
        });
    }
    EXPECT_GT(num_refused, 0);
    is_over.store(true, std::memory_order_relaxed);
    working.join();
    EXPECT_EQ(dispatch->end().num_bad() + returns->end().num_bad(), 0U);
}

// Goal: a number that stands at the rank from another process of the session is not taken for its
// round. Oracle: the second process's first round, which has the number of the first one's, is
// refused; its next one is whole.
TEST(UcxRounds, ANumberThatStandsAtTheRankIsRefused) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto of_rank = returns->two_phase().value();
    Rank rank(*of_rank);
    const auto turn = [&] {
        rank.step();
        std::this_thread::yield();
    };
    std::mt19937 random(9);
    for (const bool is_first : {true, false}) {
        const auto dispatch = network.dispatch(0);
        const auto of_session = dispatch->two_phase().value();
        await_connection(*dispatch);
        TwoPhaseSender sender(*of_session);
        EXPECT_EQ(Call(sender, random).run(turn), is_first);
        EXPECT_EQ(sender.round(), 1);
        // Before that it would be refused for another reason.
        await([&] { return !rank.has_round(); }, turn);
        if (is_first) continue;
        EXPECT_TRUE(Call(sender, random).run(turn));
    }
}

// Goal: a rank is offered another round only when it has let go of the last. Method: the connection
// breaks while a round is granted, and the next offer comes before the rank has looked.
TEST(UcxRounds, AnOfferIsRefusedBeforeTheLastRoundIsAcknowledged) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto dispatch = network.dispatch(0);
    const auto of_rank = returns->two_phase().value();
    const auto of_session = dispatch->two_phase().value();
    await_connection(*dispatch);
    TwoPhaseSender sender(*of_session);
    TwoPhaseReceiver receiver = make_receiver(*of_rank);
    const TwoPhaseOffer offer{1, 1, 2, {2, 0, 0, 0}};
    const auto answer = [&] { return sender.answer(0, Order::kAcquire); };
    const int32_t first = sender.begin();
    sender.offer(0, offer);
    await([&] { return receiver.open_round(0, Order::kAcquire) == first; });
    receiver.grant(0, first, std::vector<int64_t>(kExperts, 0));
    await([&] { return answer() == Answer::kGranted; });
    dispatch->end().fail_connection(0);
    await([&] { return answer() == Answer::kRefused; });
    sender.close();
    EXPECT_TRUE(sender.may_begin(Order::kAcquire)) << "nothing of it is stored any more";
    await_connection(*dispatch);
    EXPECT_TRUE(receiver.is_closed(0, first, Order::kAcquire));

    sender.begin();
    sender.offer(0, offer);
    await([&] { return answer() == Answer::kRefused; });
    EXPECT_EQ(receiver.open_round(0, Order::kAcquire), first);
    sender.close();
    await([&] { return sender.may_begin(Order::kAcquire); });
    receiver.acknowledge(0, first);
    const int32_t third = sender.begin();
    sender.offer(0, offer);
    await([&] { return receiver.open_round(0, Order::kAcquire) == third; });
    EXPECT_FALSE(receiver.is_closed(0, third, Order::kAcquire));
    EXPECT_EQ(answer(), Answer::kPending);
}

// Goal: an answer that stands at the rank from another process of the session is not taken for that
// to a new offer. Method: the rank refuses a round, and its session ends while the next one is not
// answered; the session's next process begins with the number of the refused one.
TEST(UcxRounds, ANumberThatWasRefusedIsRefusedAgain) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto of_rank = returns->two_phase().value();
    TwoPhaseReceiver receiver = make_receiver(*of_rank);
    const TwoPhaseOffer offer{1, 1, 2, {2, 0, 0, 0}};
    {
        const auto dispatch = network.dispatch(0);
        const auto of_session = dispatch->two_phase().value();
        await_connection(*dispatch);
        TwoPhaseSender sender(*of_session);
        const int32_t first = sender.begin();
        sender.offer(0, offer);
        await([&] { return receiver.open_round(0, Order::kAcquire) == first; });
        receiver.refuse(0, first);
        await([&] { return sender.answer(0, Order::kAcquire) == Answer::kRefused; });
        sender.close();
        await([&] { return receiver.is_closed(0, first, Order::kAcquire); });
        receiver.acknowledge(0, first);
        await([&] { return sender.may_begin(Order::kAcquire); });
        const int32_t second = sender.begin();
        sender.offer(0, offer);
        await([&] { return receiver.open_round(0, Order::kAcquire) == second; });
    }
    const auto dispatch = network.dispatch(0);
    const auto of_session = dispatch->two_phase().value();
    await_connection(*dispatch);
    const int32_t second = receiver.open_round(0, Order::kAcquire);
    EXPECT_TRUE(receiver.is_closed(0, second, Order::kAcquire));
    receiver.acknowledge(0, second);
    TwoPhaseSender sender(*of_session);
    EXPECT_EQ(sender.begin(), 1);
    sender.offer(0, offer);
    await([&] { return sender.answer(0, Order::kAcquire) == Answer::kRefused; });
    EXPECT_EQ(receiver.open_round(0, Order::kAcquire), 0);
}

TEST(UcxRounds, WithoutAConnectionIsRefusedAtOnce) {
    UcxNetwork network(small_geometry());
    const auto dispatch = network.dispatch(0);
    const auto of_session = dispatch->two_phase().value();
    TwoPhaseSender sender(*of_session);
    sender.begin();
    sender.offer(0, {1, 1, 2, {2, 0, 0, 0}});
    EXPECT_EQ(sender.answer(0, Order::kAcquire), Answer::kRefused);
    sender.close();
    EXPECT_TRUE(sender.may_begin(Order::kAcquire));
}

// Goal: words take effect behind the pieces that were sent before them, in whichever order they
// arrive; a number comes once. Method: a rank's rounds, and messages by hand.
TEST(UcxRounds, WordsWaitForThePiecesBeforeThem) {
    UcxNetwork network(small_geometry());
    UcxEnd end(network.end_config(Role::kFfn, 0, 1),
               2,
               2,
               UcxWorker::make(network.config(), true).value());
    UcxReturnRounds rounds(
        end, 0, small_geometry(), UcxReturnRounds::make_words(small_geometry()).value());
    const auto transport = rounds.make_transport();
    TwoPhaseReceiver receiver = make_receiver(*transport);
    const auto words = [&](uint32_t number, uint32_t word, const TwoPhaseSessionWords& line) {
        std::vector<std::byte> payload(28 + (word == 0 ? kExperts * sizeof(int32_t) : 0));
        std::memcpy(payload.data(), &line, 28);
        if (word == 0) payload[28] = std::byte{2};
        UcxHeader header{};
        header.kind = UcxKind::kWords;
        header.number = number;
        header.word = word;
        return rounds.on_message(0, header, payload);
    };
    const auto piece = [&](uint32_t number, uint64_t offset, size_t bytes) {
        UcxHeader header{};
        header.kind = UcxKind::kBlock;
        header.number = number;
        header.round = 5;
        header.offset = offset;
        return rounds.on_message(0, header, std::vector<std::byte>(bytes, std::byte{3}));
    };
    rounds.on_open(0);
    TwoPhaseSessionWords line{};
    line.offer = 5;
    line.layer_id = 1;
    line.num_blocks = 1;
    line.block_rows_max = 2;
    ASSERT_TRUE(words(0, 0, line));
    ASSERT_EQ(receiver.open_round(0, Order::kAcquire), 5);
    TwoPhaseOffer offer;
    ASSERT_TRUE(receiver.copy_offer(0, offer).ok());
    EXPECT_EQ(offer.counts, (std::vector<int32_t>{2, 0, 0, 0}));
    const TwoPhaseSizes sizes = two_phase_sizes(offer, kRows);
    const std::byte* received = receiver.open(0, 5, sizes).value().received;

    line.sent = 1;
    ASSERT_TRUE(words(3, 1, line));
    ASSERT_TRUE(piece(2, 8, 8));
    EXPECT_EQ(receiver.sent(0, 1, Order::kAcquire), 0U);
    EXPECT_FALSE(piece(2, 8, 8)) << "a number twice";
    ASSERT_TRUE(piece(1, 0, 8));
    EXPECT_EQ(receiver.sent(0, 1, Order::kAcquire), 1U);
    EXPECT_EQ(received[15], std::byte{3});
    EXPECT_EQ(received[16], std::byte{0});
    EXPECT_FALSE(piece(3, 0, 8)) << "a number of the past";
    EXPECT_FALSE(piece(4, sizes.receive_bytes - 7, 8)) << "beyond the end";
    EXPECT_FALSE(piece(4, UINT64_MAX, 8));
    EXPECT_FALSE(words(4, 4, line)) << "no such word";
    EXPECT_FALSE(words(9, 4, line)) << "nor ahead of its turn";
    line.offer = 0;
    EXPECT_FALSE(words(4, 0, line)) << "no round";
}

}  // namespace
}  // namespace afd::schedule
