// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttachConfig: what a worker must know to reach its own memory and its peers. All of it comes with
// afdd's Welcome and the model.

#include <string>
#include <vector>

#include "schedule/segment_header.h"
#include "schedule/window_layout.h"

namespace afd::schedule {

struct AttachConfig {
    std::string prefix;  // Of the names of all segments.
    WindowLayout layout;
    InstanceIdentity identity;
    // Own doorbell, and one per peer in the order of their indices. Not owned; must outlive the
    // transport. Non-blocking eventfds.
    int own_doorbell = -1;
    std::vector<int> peer_doorbells;
};

}  // namespace afd::schedule
