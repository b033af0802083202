// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseParts: what the lane of long prompts is made of: the session's end of two-phase rounds,
// and a layer composed over it.

#include <memory>
#include <optional>

#include "daemon/lanes/expert_lane.h"
#include "daemon/lanes/lane_sources.h"
#include "daemon/lanes/remote_two_phase.h"
#include "daemon/lanes/two_phase_lane.h"
#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/fused_moe.h"
#include "schedule/two_phase/two_phase_sender.h"

namespace afd::daemon {

class TwoPhaseParts {
  public:
    // `smooth` and `shared_stage` as the windows have them, or null; they outlive the object.
    // REQUIRES: the sources have FFN workers and a lane of long prompts.
    static Result<std::unique_ptr<TwoPhaseParts>> make(const LaneSources& sources,
                                                       const schedule::LostRanks& lost_ranks,
                                                       const model::SmoothScales* smooth,
                                                       ops::Experts* shared_stage);

    // The lane, once; the parts outlive it.
    std::unique_ptr<ExpertLane> make_lane();

  private:
    TwoPhaseParts(const LaneSources& sources,
                  const schedule::LostRanks& lost_ranks,
                  std::unique_ptr<schedule::TwoPhaseDispatchTransport> rounds,
                  const model::SmoothScales* smooth);

    // Each is used by those below it.
    std::unique_ptr<schedule::TwoPhaseDispatchTransport> two_phase_;
    schedule::TwoPhaseSender sender_;
    RemoteTwoPhase rounds_;
    ops::RemoteExperts experts_;
    std::optional<ops::FusedMoe> moe_;
    schedule::DispatchTransport* transport_;
    const schedule::LostRanks* lost_ranks_;
    Metrics metrics_;
};

}  // namespace afd::daemon
