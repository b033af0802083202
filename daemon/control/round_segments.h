// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of a two-phase round, as afdd hands it to a worker: descriptors behind a
// SegmentAnswer.

#include <cstddef>
#include <span>
#include <string>

#include "daemon/loop/unique_fd.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/shared_memory/two_phase_memory.h"

namespace afd::daemon {

// How many descriptors came with it: one for each segment that has bytes. REQUIRES: code is 0.
size_t num_round_fds(const control::SegmentAnswer& answer);

// Maps them as each side maps the windows: what it only reads without write permission. `prefix`:
// of the instance's segments. Errors: those of Segment::attach. REQUIRES: num_round_fds() of them.
Result<schedule::TwoPhaseRoundSegments> map_round_segments(std::span<const UniqueFd> fds,
                                                           control::Role role,
                                                           const std::string& prefix,
                                                           const control::SegmentAnswer& answer);

}  // namespace afd::daemon
