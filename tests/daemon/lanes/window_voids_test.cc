// SPDX-License-Identifier: Apache-2.0
//
// Goal: what stands in a shared word never takes the last rank of an expert from a session (R12).
// Method: two ranks have all experts. Rank 0 is lost, a round is voided there, and it comes back;
// but its descriptor's flag, which any process of this user may store, says another round, so that
// nobody knows whether it has acknowledged. Then rank 1 is lost, too. The ranks are
// acknowledgements by hand. Oracle: what is asked, said and published.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "daemon/lanes/window_lane.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "tests/daemon/lanes/random_moe.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kVoidsTokens = 4;

// Every expert is on both ranks.
schedule::ExpertPlacement doubled_placement() {
    std::vector<std::vector<std::vector<schedule::ExpertReplica>>> table(kLayers);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
        const int32_t num_experts = layer == 0 ? 1 : static_cast<int32_t>(kPerLayer);
        for (int32_t e = 0; e < num_experts; ++e) table[layer].push_back({{0, e}, {1, e}});
    }
    return schedule::ExpertPlacement::from_table(table, 2).value();
}

class WindowVoids {
  public:
    explicit WindowVoids(schedule::RouterPlacement router = schedule::RouterPlacement::kAttention)
        : ranks_(placement_, router),
          transport_(instance_.dispatch(0)),
          windows_(*transport_, instance_.layout().geometry, placement_, 0, router) {
        windows_.set_mode(schedule::DispatchMode::kSync);
        windows_.avoid(ranks_);
        ops::FusedMoeConfig config = moe_config(kVoidsTokens);
        config.needs_routing = router == schedule::RouterPlacement::kFfn;
        moe_.emplace(ops::FusedMoe::compose(windows_, remote_, config, serial_).value());
        lane_.emplace(WindowLane::Parts{.moe = &*moe_,
                                        .windows = &windows_,
                                        .transport = transport_.get(),
                                        .lost_ranks = &ranks_,
                                        .routes = config.needs_routing},
                      0,
                      kVoidsTokens);
        for (uint32_t seed = 0;
             call_ == nullptr || call_->input.layer_id == 0 || call_->input.num_tokens == 0;
             ++seed) {
            call_ = std::make_unique<Call>(seed, kVoidsTokens);
        }
        if (config.needs_routing) {
            call_->input.topk_ids = nullptr;
            // Their ranks are chosen here.
            call_->input.num_shared = 0;
        }
    }

    // Up to where rank 0 is back, and its word is spoilt.
    void bring_back_rank_0() {
        ASSERT_TRUE(start().ok());
        const int32_t round = windows_.round(0);
        ranks_.set(0, true);
        void_at(0);
        acknowledge(1, round);
        lane_->cancel();
        ranks_.set(0, false);
        const std::vector<int32_t> ids(instance_.layout().geometry.slots_per_micro_batch(),
                                       schedule::kMaskedId);
        instance_.dispatch(0)->publish(0, 0, 1, ids, kSpoilt);
    }
    Result<> start() {
        EXPECT_TRUE(lane_->is_free());
        return lane_->start(call_->input, ops::make_rows(out_.data(), kVoidsTokens, kHidden));
    }
    // As if afdd had been asked.
    void void_at(uint32_t rank) {
        const LaneRound round{rank, flag_of(rank)};
        lane_->ask_void(round);
        lane_->answer_void(round, true);
    }
    void acknowledge(uint32_t rank, int32_t round) {
        instance_.returns(rank)->acknowledge(0, 0, round);
    }
    int32_t flag_of(uint32_t rank) const { return transport_->descriptor_flag(rank, 0); }
    WindowPrepareFinalize& windows() { return windows_; }
    WindowLane& lane() { return *lane_; }
    schedule::LostRanks& ranks() { return ranks_; }

    static constexpr int32_t kSpoilt = 1000;

  private:
    const schedule::ExpertPlacement placement_ = doubled_placement();
    schedule::LostRanks ranks_;
    schedule::LocalInstance instance_{{.num_sessions = 1,
                                       .num_micro_batches = 1,
                                       .micro_batch_size = kVoidsTokens,
                                       .selected_expert_num = kTopK + 1,
                                       .num_experts = kRoutedExperts + 1,
                                       .attn_to_ffn_token_bytes = 512,
                                       .ffn_to_attn_token_bytes = 512,
                                       .num_ffn_workers = 2}};
    std::unique_ptr<schedule::ShmDispatchTransport> transport_;
    WindowPrepareFinalize windows_;
    ops::RemoteExperts remote_{ops::kGroupedBf16};
    ops::SerialParallel serial_;
    std::optional<ops::FusedMoe> moe_;
    std::optional<WindowLane> lane_;
    std::unique_ptr<Call> call_;
    Matrix out_ = Matrix(size_t{kVoidsTokens} * kHidden);
};

TEST(WindowVoids, NothingIsVoidedAtASecondRankBeforeTheFirstHasAcknowledged) {
    WindowVoids world;
    world.bring_back_rank_0();
    ASSERT_TRUE(world.start().ok());
    EXPECT_EQ(world.flag_of(0), WindowVoids::kSpoilt) << "nothing may be stored there";
    EXPECT_EQ(world.flag_of(1), world.windows().round(0));
    world.ranks().set(1, true);
    EXPECT_FALSE(world.lane().voidable().has_value());
    world.acknowledge(0, WindowVoids::kSpoilt);
    const auto voidable = world.lane().voidable();
    ASSERT_TRUE(voidable.has_value());
    EXPECT_EQ(voidable->rank, 1U);
}

TEST(WindowVoids, ACallThatAllRanksAreVoidToIsAnError) {
    WindowVoids world;
    world.bring_back_rank_0();
    ASSERT_TRUE(world.start().ok());
    world.ranks().set(1, true);
    world.void_at(1);
    world.lane().cancel();
    const auto refused = world.start();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    EXPECT_NE(refused.error().message.find("has acknowledged what was voided of micro-batch 0"),
              std::string::npos)
        << refused.error().message;
    world.acknowledge(0, WindowVoids::kSpoilt);
    EXPECT_TRUE(world.start().ok());
    EXPECT_EQ(world.flag_of(0), world.windows().round(0));
}

TEST(WindowVoids, TokensAreOfferedToALostRankWhereNoOtherMayGetThem) {
    WindowVoids world(schedule::RouterPlacement::kFfn);
    world.bring_back_rank_0();
    world.ranks().set(1, true);
    // Else a rank without rows gets the round, too.
    world.windows().set_mode(schedule::DispatchMode::kAsync);
    ASSERT_TRUE(world.start().ok());
    EXPECT_EQ(world.flag_of(0), WindowVoids::kSpoilt) << "nothing may be stored there";
    EXPECT_EQ(world.flag_of(1), world.windows().round(0)) << "its successor answers";
    const auto wait = world.windows().wait_info(0);
    ASSERT_TRUE(wait.has_value());
    EXPECT_EQ(wait->peer, 1);
}

}  // namespace
}  // namespace afd::daemon
