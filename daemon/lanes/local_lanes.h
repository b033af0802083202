// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalLanes: the lanes of a colocated worker, which computes all experts itself.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/lanes/expert_lanes.h"
#include "daemon/lanes/lane_sources.h"
#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"

namespace afd::daemon {

class LocalLanes final : public ExpertLanes {
  public:
    static Result<std::unique_ptr<ExpertLanes>> make(const LaneSources& sources);

    std::span<const std::unique_ptr<ExpertLane>> lanes() const override { return lanes_; }

  private:
    LocalLanes(const LaneSources& sources, WorkerExperts experts);

    // Each is used by those below it.
    const WorkerExperts held_;
    ops::LocalPrepareFinalize prepare_finalize_;
    ops::GroupedExperts experts_;
    std::optional<ops::FusedMoe> moe_;
    std::vector<std::unique_ptr<ExpertLane>> lanes_;
};

}  // namespace afd::daemon
