// SPDX-License-Identifier: Apache-2.0
#pragma once

// What windows and control areas say before anybody has run (R8). Whoever makes the memory writes
// it: InstanceSegments into segments, a transport without shared memory into its own. REQUIRES of
// the first two: zeroed memory of the layout's size, which nobody else uses yet.

#include <cstddef>

#include "schedule/context/schedule_context.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

void format_ffn_window(const WindowLayout& layout, std::byte* window);
void format_control(const SegmentHeader& header, ScheduleMode mode, std::byte* control);

// The ScheduleContext once more, for the successor of a worker that may have spoilt it. run_flag is
// left alone: afdd stores it anew for each process (context_words.h). The out_num of an FFN worker
// stays if it can be one: until its successor scans, it tells how many descriptors the worker died
// with (wire.md). REQUIRES: the worker is gone.
void restore_context(const SegmentHeader& header, ScheduleMode mode, std::byte* control);

}  // namespace afd::schedule
