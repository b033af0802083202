// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerSegments: the segments of one worker, created and initialised by the afdd of its machine.
//
// The only place where windows, flags and acknowledgements are initialised (R8). Destroying it
// unlinks the names. All segments of an instance are InstanceSegments.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "schedule/context/context_words.h"
#include "schedule/context/control_view.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"
#include "schedule/shared_memory/segment.h"

namespace afd::schedule {

// Whether workers share windows. Over a transport between machines they do not: each has its own,
// in its private memory.
enum class Windows { kShared, kPrivate };

class WorkerSegments {
  public:
    // Name and descriptor of segments, which stay their owner's.
    using Handles = std::vector<std::pair<std::string, int>>;

    // Window and area of two-phase rounds if they are shared, control and metrics segment. With
    // num_ffn_workers 0 (colocated) there are no windows. Nothing remains after an error.
    // Errors: those of Segment::create_sealed and make_segment_header.
    static Result<WorkerSegments> create(const std::string& prefix,
                                         const WindowLayout& layout,
                                         const InstanceIdentity& identity,
                                         Role role,
                                         uint32_t index,
                                         Windows windows);

    WorkerSegments(WorkerSegments&&) noexcept = default;
    WorkerSegments& operator=(WorkerSegments&&) = delete;
    ~WorkerSegments();

    ConstControlView control() const { return ConstControlView(control_.const_data()); }
    // To ask the worker to end, or let its successor run (context_words.h).
    ContextWords words() const { return ContextWords(ControlView(control_.data()).context()); }
    // Writable for the trace switch alone; the rest is the worker's.
    std::span<std::byte> metrics() const { return {metrics_.data(), metrics_.size()}; }
    // For status and post-mortem: which descriptors are open. REQUIRES: windows are shared.
    const std::byte* window() const { return window_.const_data(); }

    // Writes what is afdd's once more, whatever was stored there. Others may read meanwhile:
    // nothing but what is spoilt changes.
    void restore_header() const;
    // The ScheduleContext (fresh_memory.h). REQUIRES: the worker's process is gone.
    void restore_context() const;

    // What the worker itself attaches to, and what its peers do.
    void add_own(Handles& handles) const;
    void add_shared(Handles& handles) const;

    // Bytes that create() needs.
    static uint64_t total_bytes(const WindowLayout& layout, Role role, Windows windows);

  private:
    WorkerSegments() = default;

    Segment window_;     // Empty where none is shared, as is
    Segment two_phase_;  // the area of two_phase_control.h.
    Segment control_;
    Segment metrics_;
    SegmentHeader header_{};  // As it was written.
    ScheduleMode mode_{};
};

}  // namespace afd::schedule
