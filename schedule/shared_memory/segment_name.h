// SPDX-License-Identifier: Apache-2.0
#pragma once

// The names of an instance's segments: <prefix>-<owner>-<kind>, with prefix =
// "/afd-<instance>-<16 hex digits>". Text only; what has such a name is a Segment (segment.h). The
// memory of a two-phase round has names of its own (schedule/layout/two_phase_control.h).

#include <cstdint>
#include <string>
#include <string_view>

#include "schedule/layout/segment_header.h"

namespace afd::schedule {

enum class SegmentKind { kWindow, kControl, kMetrics, kTwoPhase };

// "/afd-<instance>-<16 hex digits of instance_id>".
std::string segment_prefix(std::string_view instance, uint64_t instance_id);

// "<prefix>-ffn<index>-window", "<prefix>-attn<index>-control", ...
std::string segment_name(std::string_view prefix, Role role, uint32_t index, SegmentKind kind);

// Whether this file of /dev/shm is a segment of exactly this instance, whatever its random part:
// all of the name is matched, because "a" must not claim what belongs to "a-b".
bool is_segment_of(std::string_view file, std::string_view instance);

}  // namespace afd::schedule
