// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertLanes: every lane of an attention worker and all that they are made of, in one object that
// is made once, at start-up, for the topology of the instance:
//
//   local_lanes.h    the experts are in this process (colocated)
//   window_lanes.h   they are in FFN workers: windows, and for long prompts two phases

#include <memory>
#include <span>

#include "daemon/lanes/expert_lane.h"
#include "daemon/lanes/session_attachment.h"
#include "daemon/worker/worker_setup.h"
#include "ops/tensor/parallel.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class ExpertLanes {
  public:
    virtual ~ExpertLanes() = default;

    // The M lanes that take any rows, and behind them that of long prompts if there is one. They
    // live as long as this object.
    virtual std::span<const std::unique_ptr<ExpertLane>> lanes() const = 0;
};

// What lanes are made from; all outlive them.
struct LaneSources {
    const WorkerSetup& setup;
    const control::Welcome& welcome;
    const SessionAttachment& attachment;
    ops::Parallel& parallel;
};

// The lanes of the instance's topology. Errors: those of loading the experts that run here; of
// FusedMoe::compose(); of attaching the areas of two-phase rounds.
Result<std::unique_ptr<ExpertLanes>> make_expert_lanes(const LaneSources& sources);

}  // namespace afd::daemon
