// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowLane: one micro-batch through the windows of the FFN workers. The rules of its flags are
// kept by window_prepare_finalize.h; here it is told who is waited for.

#include <vector>

#include "daemon/lanes/moe_lane.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "schedule/dispatch/lost_ranks.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class WindowLane final : public MoeLane {
  public:
    // What all lanes of the worker share; all outlive the object. `moe` is composed of `windows`.
    struct Parts {
        ops::FusedMoe* moe = nullptr;
        WindowPrepareFinalize* windows = nullptr;
        schedule::DispatchTransport* transport = nullptr;
        const schedule::LostRanks* lost_ranks = nullptr;
        bool routes = false;  // router = ffn
    };

    WindowLane(const Parts& parts, uint32_t micro_batch, uint32_t rows_max)
        : MoeLane({.rows = LaneRows::kAny,
                   .rows_max = rows_max,
                   .has_peers = true,
                   .routes = parts.routes},
                  *parts.moe,
                  micro_batch),
          parts_(parts),
          refused_(parts.lost_ranks->num_ranks(), 0) {}

    bool fence_lost_ranks() override {
        const schedule::LostRanks& ranks = *parts_.lost_ranks;
        schedule::DispatchLane& lane = parts_.windows->lane(slot());
        if (!may_let_go()) return false;
        bool any = false;
        for (uint32_t rank = 0; rank < ranks.num_ranks(); ++rank) {
            if (ranks.is_lost(rank)) any |= lane.fence(rank);
        }
        return any;
    }
    std::optional<LaneRound> voidable() const override {
        const schedule::LostRanks& ranks = *parts_.lost_ranks;
        if (!may_let_go()) return std::nullopt;
        for (uint32_t rank = 0; rank < ranks.num_ranks(); ++rank) {
            // It has a successor then, with its weights: the round will be executed, unless that is
            // lost, too.
            const bool is_refused = refused_[rank] == ranks.num_losses(rank);
            if (!ranks.is_lost(rank) || is_refused) continue;
            const auto round = parts_.windows->lane(slot()).voidable(rank);
            if (round) return LaneRound{rank, *round};
        }
        return std::nullopt;
    }
    void ask_void(const LaneRound& round) override {
        parts_.windows->lane(slot()).ask_void(round.rank, round.round);
    }
    void answer_void(const LaneRound& round, bool is_granted) override {
        parts_.windows->lane(slot()).answer_void(round.rank, round.round, is_granted);
        if (!is_granted && round.rank < refused_.size()) {
            refused_[round.rank] = parts_.lost_ranks->num_losses(round.rank);
        }
    }
    bool is_voided() const override { return parts_.windows->lane(slot()).is_voided(); }

    const float* topk_weights() const override { return parts_.windows->topk_weights(slot()); }
    int32_t round() const override { return parts_.windows->round(slot()); }

    // Results come before the acknowledgement: a call may be ready before the slot is free again.
    bool is_answered(schedule::Order order) const override {
        return (is_open() && ready()) || parts_.windows->is_answered(slot(), order);
    }
    std::optional<LaneWait> waits_for(uint64_t now_us) override {
        const auto info = parts_.windows->wait_info(slot());
        if (!info) return std::nullopt;
        return LaneWait{*info, parts_.transport->peer(static_cast<uint32_t>(info->peer), now_us)};
    }

  private:
    // Only while what is void to the lane is at ranks that are lost together: one that is back may
    // not have said yet what stands there, or somebody has spoilt it, and its experts are not to be
    // missed twice.
    bool may_let_go() const {
        const schedule::LostRanks& ranks = *parts_.lost_ranks;
        schedule::DispatchLane& lane = parts_.windows->lane(slot());
        if (!ranks.can_do_without()) return false;
        for (uint32_t rank = 0; rank < ranks.num_ranks(); ++rank) {
            if (!ranks.is_lost(rank) && !lane.may_store_to(rank)) return false;
        }
        return true;
    }

    const Parts parts_;
    // For each rank, the loss at which afdd did not void a round; 0: none.
    std::vector<uint64_t> refused_;
};

}  // namespace afd::daemon
