// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceSegments: every segment of one instance, created and initialised by afdd.
//
// The only place where windows, flags and acknowledgements are initialised (R8). Destroying it
// unlinks the names. Through it afdd reads the heartbeats and metrics of its workers.

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

class InstanceSegments {
  public:
    // Creates windows, control, two-phase and metrics segments for every session and rank; with
    // num_ffn_workers 0 (colocated) only the attention workers' control and metrics segments.
    // Nothing remains after an error.
    // Errors: kResourceExhausted if all of it does not fit; those of Segment::create and
    // make_segment_header.
    static Result<InstanceSegments> create(const std::string& prefix,
                                           const WindowLayout& layout,
                                           const InstanceIdentity& identity);

    InstanceSegments(InstanceSegments&&) noexcept = default;
    InstanceSegments& operator=(InstanceSegments&&) = delete;
    ~InstanceSegments();

    ConstControlView attention_control(uint32_t session) const;
    ConstControlView ffn_control(uint32_t rank) const;
    // Asks a worker to end, or lets its successor run (context_words.h).
    void set_run_flag(Role role, uint32_t index, bool runs) const;
    bool run_flag(Role role, uint32_t index) const;
    // Writable for the trace switch alone; the rest is the worker's.
    std::span<std::byte> attention_metrics(uint32_t session) const;
    std::span<std::byte> ffn_metrics(uint32_t rank) const;

    // Writes what is afdd's in control segments once more, whatever was stored there: every header,
    // and of this worker the ScheduleContext (restore_context()). Others may read headers
    // meanwhile: nothing but what is spoilt changes. REQUIRES: its process is gone.
    void restore(Role role, uint32_t index) const;

    // Read-only views for status and post-mortem (which descriptors are open).
    const std::byte* ffn_window(uint32_t rank) const;
    const std::byte* ffn_control_bytes(uint32_t rank) const;

    // The segments that a worker attaches to, its own and those of its peers: name and descriptor,
    // which stay this object's.
    std::vector<std::pair<std::string, int>> handles(Role role, uint32_t index) const;

    // Bytes that a layout needs in total, for a check before starting and for doctor.
    static uint64_t total_bytes(const WindowLayout& layout);

  private:
    struct Worker {
        Segment window;     // Empty when colocated, as is
        Segment two_phase;  // the area of two_phase_control.h.
        Segment control;
        Segment metrics;
        SegmentHeader header{};  // As it was written.
        ScheduleMode mode{};
    };

    InstanceSegments() = default;
    Result<> add(const std::string& prefix,
                 const WindowLayout& layout,
                 const InstanceIdentity& identity,
                 Role role,
                 uint32_t index);

    ContextWords words(Role role, uint32_t index) const;
    const Worker& attention(uint32_t session) const;
    const Worker& ffn(uint32_t rank) const;

    std::vector<Worker> attention_;
    std::vector<Worker> ffn_;
};

}  // namespace afd::schedule
