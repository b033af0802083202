// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttachConfig: what a worker must know to reach its own memory and its peers. All of it comes with
// afdd's Welcome and the model.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/status.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/shared_memory/two_phase_memory.h"

namespace afd::schedule {

struct AttachConfig {
    std::string prefix;  // Of the names of all segments.
    WindowLayout layout;
    InstanceIdentity identity;
    // Own doorbell, and one per peer in the order of their indices. Not owned; must outlive the
    // transport. Non-blocking eventfds.
    int own_doorbell = -1;
    std::vector<int> peer_doorbells;
    // Descriptors of segments, as afdd hands them over. Not owned; needed while attaching only.
    std::map<std::string, int> segment_fds = {};
    // Of rounds that are made later; null: by name. Not owned; must outlive the transport.
    TwoPhaseMemory* two_phase_memory = nullptr;

    // Attaches by the descriptor, so that no name has to exist; without one, by name.
    // Errors: those of Segment::attach.
    Result<Segment> attach(const std::string& name,
                           uint64_t size_bytes,
                           Segment::Access access) const {
        const auto found = segment_fds.find(name);
        return found == segment_fds.end()
                   ? Segment::attach(name, size_bytes, access)
                   : Segment::attach(found->second, name, size_bytes, access);
    }
};

}  // namespace afd::schedule
