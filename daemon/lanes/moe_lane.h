// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeLane: a lane over one slot of a composed layer (ops::FusedMoe). As it is, the lane of experts
// in this process: start() computes, and nobody is waited for. Lanes with peers derive from it and
// answer for them. See expert_lane.h for every function.

#include <utility>

#include "daemon/lanes/expert_lane.h"
#include "ops/fused_moe/fused_moe.h"

namespace afd::daemon {

class MoeLane : public ExpertLane {
  public:
    // `moe` outlives the object; `slot` is its micro-batch there.
    MoeLane(const LaneTraits& traits, ops::FusedMoe& moe, uint32_t slot)
        : ExpertLane(traits), moe_(moe), slot_(slot) {}

    bool is_free() override { return moe_.slot_free(slot_); }

    Result<> start(const ops::MoeInput& input, ops::Rows<ops::Bf16> out) override {
        AFD_ASSIGN(ticket_, moe_.start(input, slot_));
        out_ = out;
        return {};
    }

    bool can_advance() const override { return moe_.can_advance(ticket_); }
    Result<> advance() override { return moe_.advance(ticket_); }
    bool ready() const override { return moe_.ready(ticket_); }
    Result<> finish() override { return moe_.finish(std::move(ticket_), out_); }
    void cancel() override { ticket_ = {}; }

    bool is_answered(schedule::Order) const override { return !is_open() || ready(); }

  protected:
    bool is_open() const { return ticket_.valid(); }
    uint32_t slot() const { return slot_; }

  private:
    ops::FusedMoe& moe_;
    const uint32_t slot_;
    ops::MoeTicket ticket_;
    ops::Rows<ops::Bf16> out_;
};

}  // namespace afd::daemon
