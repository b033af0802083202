// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceSegments: every segment of one instance, created and initialised by afdd (R8,
// worker_segments.h).
//
// Destroying it unlinks the names. Through it afdd reads the heartbeats and metrics of its workers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/status.h"
#include "schedule/context/control_view.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"
#include "schedule/shared_memory/worker_segments.h"

namespace afd::schedule {

struct LaneWords {
    int32_t round = 0;  // The descriptor's flag; 0: never used.
    int32_t layer_id = 0;
    int32_t acknowledged = 0;
};

class InstanceSegments {
  public:
    // Creates the segments of every session and rank. Nothing remains after an error.
    // Errors: kResourceExhausted if all of it does not fit; those of WorkerSegments::create.
    static Result<InstanceSegments> create(const std::string& prefix,
                                           const WindowLayout& layout,
                                           const InstanceIdentity& identity,
                                           Windows windows = Windows::kShared);

    ConstControlView attention_control(uint32_t session) const;
    ConstControlView ffn_control(uint32_t rank) const;
    // Asks a worker to end, or lets its successor run (context_words.h).
    void set_run_flag(Role role, uint32_t index, bool runs) const;
    // Writable for the trace switch alone; the rest is the worker's.
    std::span<std::byte> attention_metrics(uint32_t session) const;
    std::span<std::byte> ffn_metrics(uint32_t rank) const;
    // A read-only view, for status and post-mortem. REQUIRES: windows are shared.
    const std::byte* ffn_window(uint32_t rank) const;
    bool has_shared_windows() const { return windows_ == Windows::kShared; }
    // What a session has sent to a rank in a micro-batch, and what the rank has let go of: words
    // that others write, not all of one moment. REQUIRES: windows are shared; all are indices of
    // the geometry.
    LaneWords lane_words(uint32_t rank, uint32_t session, uint32_t micro_batch) const;
    const Geometry& geometry() const { return layout_.geometry; }

    // Writes what is afdd's in control segments once more, whatever was stored there: every header,
    // and of this worker the ScheduleContext. REQUIRES: its process is gone.
    void restore(Role role, uint32_t index) const;

    // The segments that a worker attaches to: its own, and where windows are shared those of its
    // peers. They stay this object's.
    WorkerSegments::Handles handles(Role role, uint32_t index) const;

    // Bytes that a layout needs in total, for a check before starting and for doctor.
    static uint64_t total_bytes(const WindowLayout& layout, Windows windows = Windows::kShared);

  private:
    InstanceSegments(const WindowLayout& layout, Windows windows)
        : layout_(layout), windows_(windows) {}

    const std::vector<WorkerSegments>& workers(Role role) const {
        return role == Role::kFfn ? ffn_ : attention_;
    }
    const WorkerSegments& worker(Role role, uint32_t index) const;

    WindowLayout layout_;
    Windows windows_;
    std::vector<WorkerSegments> attention_;
    std::vector<WorkerSegments> ffn_;
};

}  // namespace afd::schedule
