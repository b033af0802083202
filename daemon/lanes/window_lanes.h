// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowLanes: the lanes of a worker whose experts are in FFN workers: one for each micro-batch in
// the windows, and one in two phases if the instance has it. The shared experts may run here, as a
// stage beside the wait for the others (config.h: shared_experts).

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/lanes/expert_lanes.h"
#include "daemon/lanes/lane_sources.h"
#include "daemon/lanes/two_phase_parts.h"
#include "daemon/lanes/window_lane.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "schedule/dispatch/lost_ranks.h"

namespace afd::daemon {

class WindowLanes final : public ExpertLanes {
  public:
    static Result<std::unique_ptr<ExpertLanes>> make(const LaneSources& sources);

    std::span<const std::unique_ptr<ExpertLane>> lanes() const override { return lanes_; }
    schedule::LostRanks* lost_ranks() override { return &lost_ranks_; }

  private:
    explicit WindowLanes(const LaneSources& sources);

    Result<> load_smooth_scales(const LaneSources& sources);
    Result<> load_shared_stage(const LaneSources& sources);
    Result<> compose(const LaneSources& sources);

    // Each is used by those below it.
    schedule::LostRanks lost_ranks_;
    std::optional<model::SmoothScales> smooth_;  // Of the rows that are sent, if they have any.
    WindowPrepareFinalize windows_;
    ops::RemoteExperts experts_;
    std::optional<WorkerExperts> shared_;
    std::optional<ops::GroupedExperts> shared_stage_;
    std::optional<ops::FusedMoe> moe_;
    std::unique_ptr<TwoPhaseParts> two_phase_;
    std::vector<std::unique_ptr<ExpertLane>> lanes_;
};

}  // namespace afd::daemon
