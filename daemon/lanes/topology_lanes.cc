// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/topology_lanes.h"

#include "daemon/lanes/local_lanes.h"
#include "daemon/lanes/window_lanes.h"

namespace afd::daemon {

Result<std::unique_ptr<ExpertLanes>> make_expert_lanes(const LaneSources& sources) {
    return sources.setup.is_colocated ? LocalLanes::make(sources) : WindowLanes::make(sources);
}

}  // namespace afd::daemon
