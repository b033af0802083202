// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseSession: a session that calls the layers of tests/daemon/lanes/random_moe.h in two
// phases, step by step, and the ranks that serve it.

#include "tests/daemon/lanes/random_moe.h"
#include "tests/daemon/lanes/two_phase_rank.h"

namespace afd::daemon {

inline constexpr uint32_t kTwoPhaseTokensMax = 70;
inline constexpr uint64_t kPatienceUs = 30'000'000;

// The shared experts alone, key = layer.
inline const ops::ExpertTable& shared_experts() {
    static const ops::ExpertTable table = [] {
        ops::ExpertTable made(kLayers, kHidden);
        for (uint32_t layer = 1; layer < kLayers; ++layer) {
            made.set(layer, make_expert(layer, kRoutedExperts));
        }
        return made;
    }();
    return table;
}

// A session, with what its data thread has.
class TwoPhaseSession {
  public:
    // How it reaches its ranks.
    struct Ends {
        std::unique_ptr<schedule::TwoPhaseDispatchTransport> transport;
        schedule::Doorbell doorbell;
    };

    TwoPhaseSession(TwoPhaseWorld& world,
                    const schedule::ExpertPlacement& placement,
                    uint32_t session,
                    uint32_t block_tokens,
                    bool has_shared_stage = false)
        : TwoPhaseSession(Ends{world.dispatch(session), world.session_doorbell(session)},
                          placement,
                          session,
                          block_tokens,
                          has_shared_stage) {}
    TwoPhaseSession(Ends ends,
                    const schedule::ExpertPlacement& placement,
                    uint32_t session,
                    uint32_t block_tokens,
                    bool has_shared_stage = false)
        : transport_(std::move(ends.transport)),
          sender_(*transport_),
          part_({.session = session,
                 .hidden = kHidden,
                 .top_k = kTopK,
                 .num_shared = has_shared_stage ? 0U : 1U,
                 .num_tokens_max = kTwoPhaseTokensMax,
                 .block_tokens = block_tokens},
                {.sender = &sender_, .placement = &placement, .parallel = &serial_}),
          remote_(ops::kGroupedBf16),
          shared_(shared_experts(), 1),
          moe_(ops::FusedMoe::compose(part_,
                                      remote_,
                                      session_config(has_shared_stage),
                                      serial_,
                                      has_shared_stage ? &shared_ : nullptr)
                   .value()),
          wait_(ends.doorbell, 20, false),
          out_(size_t{kTwoPhaseTokensMax} * kHidden) {}

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
    Result<> finish(ops::MoeTicket&& ticket, const Call& call) {
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
        ops::FusedMoeConfig config = moe_config(kTwoPhaseTokensMax);
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
    std::unique_ptr<schedule::TwoPhaseDispatchTransport> transport_;
    schedule::TwoPhaseSender sender_;
    RemoteTwoPhase part_;
    ops::RemoteExperts remote_;
    ops::GroupedExperts shared_;
    ops::FusedMoe moe_;
    schedule::AdaptiveWait wait_;
    Matrix out_;
};

// A rank with its share of the experts; `steps_per_life` as in TwoPhaseRank::Setup.
inline std::unique_ptr<TwoPhaseRank> make_rank(TwoPhaseWorld& world,
                                               const schedule::ExpertPlacement& placement,
                                               uint32_t rank,
                                               uint32_t steps_per_life = 0) {
    const auto table = std::make_shared<ops::ExpertTable>(shard(placement, rank));
    const size_t per_layer = placement.num_local_experts_per_layer(rank);
    return std::make_unique<TwoPhaseRank>(
        TwoPhaseRank::Setup{.world = &world,
                            .placement = &placement,
                            .rank = rank,
                            .hidden = kHidden,
                            .steps_per_life = steps_per_life},
        [table, per_layer] { return std::make_unique<ops::GroupedExperts>(*table, per_layer); });
}

}  // namespace afd::daemon
