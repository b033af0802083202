// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseLane: long prompts, dispatched in two phases. The round is carried by remote_two_phase.h,
// whose steps advance() takes before those of the shared experts: FFN workers compute what was sent
// while the shared experts run here.
//
// Makes system calls: a round maps its memory.

#include "daemon/lanes/moe_lane.h"
#include "daemon/lanes/remote_two_phase.h"
#include "daemon/metrics/metrics.h"
#include "schedule/dispatch/lost_ranks.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class TwoPhaseLane final : public MoeLane {
  public:
    // All outlive the object. `moe` is composed of `rounds`.
    struct Parts {
        ops::FusedMoe* moe = nullptr;
        RemoteTwoPhase* rounds = nullptr;
        schedule::DispatchTransport* transport = nullptr;
        const schedule::LostRanks* lost_ranks = nullptr;
    };

    TwoPhaseLane(const Parts& parts, const Metrics& metrics, uint32_t rows_max);

    Result<> start(const ops::MoeInput& input, ops::Rows<ops::Bf16> out) override;
    bool can_advance() const override;
    Result<> advance() override;
    // Counts the rounds that came back, and those whose rows must go another way.
    Result<> finish() override;

    // A round that has begun waits for the rank's successor; its rows need not (R12).
    bool is_voided() const override { return parts_.lost_ranks->can_do_without(); }

    bool is_answered(schedule::Order order) const override;
    std::optional<LaneWait> waits_for(uint64_t now_us) override;
    void take_segments(WorkerCommand& command) override { parts_.rounds->take_segments(command); }

  private:
    const Parts parts_;
    Metrics metrics_;
};

}  // namespace afd::daemon
