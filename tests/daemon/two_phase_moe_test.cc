// SPDX-License-Identifier: Apache-2.0
//
// Goal: the MoE layer in two phases gives the bits of the local composition, whatever the number of
// FFN workers and sessions and the size of a block; nothing is lost when a rank dies between any
// two steps; memory goes back after every round, also a cancelled one; no access races.
// Method: sessions and ranks are threads over one mapping (a thread sanitizer sees all of them);
// another thread makes the segments, as afdd does. Random rows and routings, masked slots included.
// Oracle: ops::LocalPrepareFinalize with ops::GroupedExperts over the same weights.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/grouped_experts.h"
#include "ops/fused_moe/local_prepare_finalize.h"
#include "tests/daemon/two_phase_world.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kHidden = 32;
constexpr uint32_t kLayers = 2;  // Layer 0 is dense.
constexpr uint32_t kExperts = 6;
constexpr uint32_t kTopK = 3;
constexpr uint32_t kTokensMax = 70;
constexpr uint32_t kPerLayer = kExperts + 1;  // And the shared one.
constexpr uint64_t kPatienceUs = 30'000'000;

using Matrix = std::vector<ops::Bf16>;

Matrix random_matrix(size_t rows, size_t cols, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.2F);
    Matrix matrix(rows * cols);
    for (ops::Bf16& value : matrix) value = ops::from_float(normal(random));
    return matrix;
}

// The expert's weights depend only on layer and logical expert.
ops::PackedExpert make_expert(uint32_t layer, uint32_t expert) {
    constexpr uint32_t kIntermediate = 16;
    const uint32_t seed = 1000 * layer + 10 * expert;
    const Matrix gate = random_matrix(kIntermediate, kHidden, seed + 1);
    const Matrix up = random_matrix(kIntermediate, kHidden, seed + 2);
    const Matrix down = random_matrix(kHidden, kIntermediate, seed + 3);
    return ops::pack_expert(ops::make_rows(gate.data(), kIntermediate, kHidden),
                            ops::make_rows(up.data(), kIntermediate, kHidden),
                            ops::make_rows(down.data(), kHidden, kIntermediate),
                            ops::best_numeric_class());
}

// `num_shared` 0: the sessions compute the shared expert.
schedule::ExpertPlacement placement_of(uint32_t num_ranks, uint32_t num_shared = 1) {
    const schedule::LayerExperts layers[] = {{0, 1}, {kExperts, num_shared}};
    return schedule::ExpertPlacement::round_robin(layers, num_ranks).value();
}

ops::ExpertTable shard(const schedule::ExpertPlacement& placement, uint32_t rank) {
    const size_t per_layer = placement.num_local_experts_per_layer(rank);
    ops::ExpertTable table(kLayers * per_layer, kHidden);
    for (const schedule::LocalExpert& local : placement.local_experts(rank)) {
        table.set(local.layer_id * per_layer + static_cast<size_t>(local.local_id),
                  make_expert(local.layer_id, local.expert));
    }
    return table;
}

const ops::ExpertTable& all_experts() {
    static const ops::ExpertTable table = [] {
        ops::ExpertTable made(kLayers * kPerLayer, kHidden);
        made.set(0, make_expert(0, 0));
        for (uint32_t expert = 0; expert <= kExperts; ++expert) {
            made.set(kPerLayer + expert, make_expert(1, expert));
        }
        return made;
    }();
    return table;
}

// The shared experts alone, key = layer.
const ops::ExpertTable& shared_experts() {
    static const ops::ExpertTable table = [] {
        ops::ExpertTable made(kLayers, kHidden);
        made.set(1, make_expert(1, kExperts));
        return made;
    }();
    return table;
}

// One random call of the layer, made from a seed.
struct Call {
    Matrix x;
    std::vector<int32_t> ids;
    std::vector<float> weights;
    ops::MoeInput input;

    explicit Call(uint32_t seed) {
        std::mt19937 random(seed);
        input.num_tokens = static_cast<uint32_t>(random()) % (kTokensMax + 1);
        input.layer_id = static_cast<uint32_t>(random()) % 4 == 0 ? 0 : 1;
        input.top_k = kTopK;
        input.num_shared = input.layer_id == 0 ? 0 : 1;
        // Now and then every routed slot is masked, or all tokens choose one expert.
        const uint32_t kind = static_cast<uint32_t>(random()) % 8;
        x = random_matrix(input.num_tokens, kHidden, seed);
        for (uint32_t i = 0; i < input.num_tokens * kTopK; ++i) {
            const bool is_masked = kind == 0 || random() % 5 == 0;
            const auto expert = static_cast<int32_t>(kind == 1 ? 2 : random() % kExperts);
            const int32_t dense = i % kTopK == 0 ? 0 : -1;
            ids.push_back(input.layer_id == 0 ? dense : is_masked ? -1 : expert);
            weights.push_back(static_cast<float>(random() % 100) / 100);
        }
        input.x = ops::make_rows<const ops::Bf16>(x.data(), input.num_tokens, kHidden);
        input.topk_ids = ids.data();
        input.topk_weights = weights.data();
    }
};

std::vector<uint16_t> bits_of(const Matrix& rows, size_t count) {
    std::vector<uint16_t> bits;
    for (size_t i = 0; i < count; ++i) bits.push_back(rows[i].bits);
    return bits;
}

ops::FusedMoeConfig moe_config() {
    return {.hidden = kHidden,
            .num_experts = kExperts,
            .top_k = kTopK,
            .num_shared = 1,
            .max_num_tokens = kTokensMax,
            .num_micro_batches = 1};
}

std::vector<uint16_t> local_result(const Call& call) {
    ops::SerialParallel serial;
    ops::LocalPrepareFinalize prepare_finalize(moe_config(), serial);
    ops::GroupedExperts experts(all_experts(), kPerLayer);
    auto moe = ops::FusedMoe::compose(prepare_finalize, experts, moe_config(), serial);
    EXPECT_TRUE(moe.ok()) << moe.error().message;
    Matrix out(size_t{kTokensMax} * kHidden);
    const auto applied =
        moe.value().apply(call.input, ops::make_rows(out.data(), call.input.num_tokens, kHidden));
    EXPECT_TRUE(applied.ok()) << applied.error().message;
    return bits_of(out, size_t{call.input.num_tokens} * kHidden);
}

// A session, with what its data thread has.
class Session {
  public:
    Session(TwoPhaseWorld& world,
            const schedule::ExpertPlacement& placement,
            uint32_t session,
            uint32_t block_tokens,
            bool has_shared_stage = false)
        : sender_(world.sender(session)),
          part_({.session = session,
                 .hidden = kHidden,
                 .top_k = kTopK,
                 .num_shared = has_shared_stage ? 0U : 1U,
                 .num_tokens_max = kTokensMax,
                 .block_tokens = block_tokens},
                {.sender = sender_.get(),
                 .memory = &world.memory(),
                 .placement = &placement,
                 .parallel = &serial_}),
          remote_(ops::kGroupedBf16),
          shared_(shared_experts(), 1),
          moe_(ops::FusedMoe::compose(part_,
                                      remote_,
                                      session_config(has_shared_stage),
                                      serial_,
                                      has_shared_stage ? &shared_ : nullptr)
                   .value()),
          wait_(world.session_doorbell(session), 20, false),
          out_(size_t{kTokensMax} * kHidden) {}

    // Waits until the slot is free, and starts.
    ops::MoeTicket start(const Call& call) {
        EXPECT_TRUE(wait([&] { return moe_.slot_free(0); }));
        part_.expect_output(rows(call));
        auto ticket = moe_.start(call.input, 0);
        EXPECT_TRUE(ticket.ok()) << ticket.error().message;
        return std::move(ticket).value();
    }
    // One step of the round; false at its end.
    bool step(ops::MoeTicket& ticket) {
        if (moe_.ready(ticket)) return false;
        EXPECT_TRUE(wait([&] {
            if (part_.advance()) return true;
            if (!moe_.can_advance(ticket)) return false;
            return moe_.advance(ticket).ok();
        }));
        return !testing::Test::HasFailure();
    }
    Result<void> finish(ops::MoeTicket&& ticket, const Call& call) {
        return moe_.finish(std::move(ticket), rows(call));
    }
    bool idle() {
        return wait([&] { return moe_.slot_free(0); });
    }
    std::vector<uint16_t> bits(const Call& call) const {
        return bits_of(out_, size_t{call.input.num_tokens} * kHidden);
    }

  private:
    // The stage takes a few tokens at a time, more or less than a block.
    static ops::FusedMoeConfig session_config(bool has_shared_stage) {
        ops::FusedMoeConfig config = moe_config();
        config.has_shared_stage = has_shared_stage;
        config.max_shared_tokens = 13;
        return config;
    }

    template <typename Done>
    bool wait(const Done& done) {
        const uint64_t deadline_us = schedule::steady_now_us() + kPatienceUs;
        while (!done()) {
            if (schedule::steady_now_us() > deadline_us) return false;
            wait_.until(
                deadline_us, true, [&](schedule::Order order) { return part_.can_advance(order); });
        }
        return true;
    }
    ops::Rows<ops::Bf16> rows(const Call& call) {
        return ops::make_rows(out_.data(), call.input.num_tokens, kHidden);
    }

    ops::SerialParallel serial_;
    std::unique_ptr<schedule::TwoPhaseSender> sender_;
    TwoPhasePrepareFinalize part_;
    ops::RemoteExperts remote_;
    ops::GroupedExperts shared_;
    ops::FusedMoe moe_;
    schedule::AdaptiveWait wait_;
    Matrix out_;
};

// A rank's thread until the object ends. It dies again and again, after 1 to `steps_per_life` steps
// (0: never): all that it has in its own memory is lost, and a successor starts.
class Rank {
  public:
    Rank(TwoPhaseWorld& world,
         const schedule::ExpertPlacement& placement,
         uint32_t rank,
         uint32_t steps_per_life)
        : thread_([=, this, &world, &placement] {
              const ops::ExpertTable table = shard(placement, rank);
              uint32_t num_lives = 0;
              // Relaxed: a flag that orders nothing; the doorbell is rung after it.
              while (!is_over_.load(std::memory_order_relaxed)) {
                  // 7 has no common divisor with the numbers that are used: every length comes.
                  num_lives += 7;
                  const uint32_t steps = steps_per_life == 0 ? 0 : 1 + num_lives % steps_per_life;
                  live(world, placement, rank, table, steps);
              }
          }),
          doorbell_fd_(world.rank_doorbell(rank).eventfd()) {}
    ~Rank() {
        is_over_.store(true, std::memory_order_relaxed);
        schedule::DoorbellRinger(nullptr, doorbell_fd_).ring();
        thread_.join();
    }

  private:
    void live(TwoPhaseWorld& world,
              const schedule::ExpertPlacement& placement,
              uint32_t rank,
              const ops::ExpertTable& table,
              uint32_t steps_max) {
        ops::SerialParallel serial;
        ops::GroupedExperts experts(table, placement.num_local_experts_per_layer(rank));
        const auto receiver = world.receiver(
            rank, placement, TwoPhaseExperts::row_bytes(ops::DispatchDtype::kBf16, kHidden));
        // What afdd answered to a predecessor ended with its channel.
        WorkerCommand command;
        while (world.port(rank).pop_command(command)) {
        }
        TwoPhaseExperts part({.receiver = receiver.get(),
                              .memory = &world.memory(),
                              .placement = &placement,
                              .experts = &experts,
                              .hidden = kHidden,
                              .parallel = &serial,
                              .port = &world.port(rank)});
        schedule::AdaptiveWait wait(world.rank_doorbell(rank), 20, false);
        for (uint32_t steps = 0; steps_max == 0 || steps < steps_max;) {
            if (is_over_.load(std::memory_order_relaxed)) return;
            if (world.port(rank).pop_command(command)) {
                part.on_segment(command);
                ++steps;
                continue;
            }
            if (part.advance()) {
                ++steps;
                continue;
            }
            wait.until(schedule::steady_now_us() + 10'000, true, [&](schedule::Order order) {
                return world.port(rank).has_command() || part.has_work(order) ||
                       is_over_.load(std::memory_order_relaxed);
            });
        }
    }

    std::atomic<bool> is_over_{false};
    std::thread thread_;
    int doorbell_fd_;
};

struct Shape {
    uint32_t num_sessions;
    uint32_t num_ranks;
    uint32_t block_tokens;
    uint32_t steps_per_life;
    bool has_shared_stage = false;
};

class TwoPhaseMoe : public testing::TestWithParam<Shape> {};

TEST_P(TwoPhaseMoe, GivesTheBitsOfTheLocalComposition) {
    const Shape shape = GetParam();
    const schedule::ExpertPlacement placement =
        placement_of(shape.num_ranks, shape.has_shared_stage ? 0 : 1);
    TwoPhaseWorld world(shape.num_sessions, shape.num_ranks, kPerLayer);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t rank = 0; rank < shape.num_ranks; ++rank) {
        ranks.push_back(std::make_unique<Rank>(world, placement, rank, shape.steps_per_life));
    }
    std::vector<std::thread> sessions;
    for (uint32_t s = 0; s < shape.num_sessions; ++s) {
        sessions.emplace_back([&, s] {
            Session session(world, placement, s, shape.block_tokens, shape.has_shared_stage);
            for (uint32_t i = 0; i < 40; ++i) {
                const Call call(s * 100000 + i);
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
                                         Shape{2, 2, 20, 5, true}),
                         [](const auto& shape) {
                             return "A" + std::to_string(shape.param.num_sessions) + "F" +
                                    std::to_string(shape.param.num_ranks) + "B" +
                                    std::to_string(shape.param.block_tokens) + "Life" +
                                    std::to_string(shape.param.steps_per_life) +
                                    (shape.param.has_shared_stage ? "SharedStage" : "");
                         });

// Goal: a round may be given up between any two of its steps. Method: 60 rounds, each cancelled
// after one more step than the last of its kind, while another session works. Oracle: the next
// round's bits; at the end no memory is left.
TEST(TwoPhaseCancel, GivesTheMemoryBackAndDisturbsNobody) {
    const schedule::ExpertPlacement placement = placement_of(2);
    TwoPhaseWorld world(2, 2, kPerLayer);
    {
        Rank first(world, placement, 0, 0);
        Rank second(world, placement, 1, 0);
        const auto run = [&](uint32_t s, bool cancels) {
            Session session(world, placement, s, 8);
            for (uint32_t i = 0; i < 60; ++i) {
                const Call call(s * 100000 + i);
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
    TwoPhaseWorld world(1, 2, kPerLayer, 4000);
    Rank first(world, placement, 0, 0);
    Rank second(world, placement, 1, 0);
    Session session(world, placement, 0, 16);
    uint32_t num_refused = 0;
    uint32_t num_served = 0;
    for (uint32_t i = 0; i < 40; ++i) {
        const Call call(i);
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
                      " tokens in two phases: it has no memory for them, or they killed it");
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
    while (Call(seed).input.num_tokens < 50) ++seed;
    const Call call(seed);
    Session session(world, placement, 0, 16);
    ops::MoeTicket ticket = session.start(call);
    const auto predecessor = world.receiver(
        0, placement, TwoPhaseExperts::row_bytes(ops::DispatchDtype::kBf16, kHidden));
    const int32_t round = predecessor->open_round(0, schedule::Order::kAcquire);
    ASSERT_NE(round, 0);
    for (int i = 0; i < 3; ++i) predecessor->start_block(0, round);

    Rank rank(world, placement, 0, 0);
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
        Rank first(world, placement, 0, 0);
        Rank second(world, placement, 1, 0);
        uint32_t seed = 0;  // Of a call with blocks enough for the steps.
        while (Call(seed).input.num_tokens < 50) ++seed;
        const Call call(seed);
        Session predecessor(world, placement, 0, 8);
        ops::MoeTicket ticket = predecessor.start(call);
        for (uint32_t i = 0; i < num_steps; ++i) ASSERT_TRUE(predecessor.step(ticket));

        Session successor(world, placement, 0, 8);
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
        Rank rank(world, placement, 0, 0);
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

}  // namespace
}  // namespace afd::daemon
