// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertLanes: every lane of an attention worker and all that they are made of, in one object that
// is made once, at start-up, for the topology of the instance (topology_lanes.h).

#include <memory>
#include <span>

#include "daemon/lanes/expert_lane.h"
#include "schedule/dispatch/lost_ranks.h"

namespace afd::daemon {

class ExpertLanes {
  public:
    virtual ~ExpertLanes() = default;

    // The M lanes that take any rows, and behind them that of long prompts if there is one. They
    // live as long as this object.
    virtual std::span<const std::unique_ptr<ExpertLane>> lanes() const = 0;

    // The ranks that the lanes avoid, for whoever hears of them; null: nobody is lost.
    virtual schedule::LostRanks* lost_ranks() { return nullptr; }
};

}  // namespace afd::daemon
