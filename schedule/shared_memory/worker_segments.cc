// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/worker_segments.h"

#include "schedule/context/fresh_memory.h"
#include "schedule/layout/two_phase_control.h"

namespace afd::schedule {
namespace {

bool has_windows(const WindowLayout& layout, Windows windows) {
    return layout.geometry.num_ffn_workers > 0 && windows == Windows::kShared;
}

uint64_t window_bytes(const WindowLayout& layout, Role role) {
    return role == Role::kFfn ? layout.ffn_window.total_bytes : layout.attention_window.total_bytes;
}

uint64_t two_phase_bytes(const WindowLayout& layout, Role role) {
    const auto two_phase = TwoPhaseControlLayout::compute(layout.geometry);
    return role == Role::kFfn ? two_phase.rank_bytes() : two_phase.session_bytes();
}

uint64_t control_bytes(const WindowLayout& layout, Role role) {
    return role == Role::kFfn ? layout.ffn_control.total_bytes : layout.attention_control_bytes;
}

uint64_t metrics_bytes(const WindowLayout& layout, Role role) {
    return role == Role::kFfn ? layout.ffn_metrics_bytes : layout.attention_metrics_bytes;
}

// An error in the middle of create() leaves segments that were never made; they have no name.
void unlink(const Segment& segment) {
    if (segment.size() != 0) Segment::unlink(segment.name());
}

void add(const Segment& segment, WorkerSegments::Handles& handles) {
    if (segment.size() != 0) handles.emplace_back(segment.name(), segment.descriptor());
}

}  // namespace

Result<WorkerSegments> WorkerSegments::create(const std::string& prefix,
                                              const WindowLayout& layout,
                                              const InstanceIdentity& identity,
                                              Role role,
                                              uint32_t index,
                                              Windows windows) {
    const bool is_ffn = role == Role::kFfn;
    WorkerSegments made;
    AFD_ASSIGN(made.header_, make_segment_header(layout.geometry, identity, role, index));
    const auto create_segment = [&](SegmentKind kind, uint64_t bytes) {
        return Segment::create_sealed(segment_name(prefix, role, index, kind), bytes);
    };
    if (has_windows(layout, windows)) {
        AFD_ASSIGN(made.window_, create_segment(SegmentKind::kWindow, window_bytes(layout, role)));
        if (is_ffn) format_ffn_window(layout, made.window_.data());
        AFD_ASSIGN(made.two_phase_,
                   create_segment(SegmentKind::kTwoPhase, two_phase_bytes(layout, role)));
    }
    AFD_ASSIGN(made.control_, create_segment(SegmentKind::kControl, control_bytes(layout, role)));
    AFD_ASSIGN(made.metrics_, create_segment(SegmentKind::kMetrics, metrics_bytes(layout, role)));
    made.mode_ = is_ffn                                ? ScheduleMode::kFfn
                 : layout.geometry.num_ffn_workers > 0 ? ScheduleMode::kAttention
                                                       : ScheduleMode::kBoth;
    format_control(made.header_, made.mode_, made.control_.data());
    return made;
}

WorkerSegments::~WorkerSegments() {
    for (const Segment* segment : {&window_, &two_phase_, &control_, &metrics_}) unlink(*segment);
}

void WorkerSegments::restore_header() const {
    ControlView(control_.data()).write_header(header_);
}

void WorkerSegments::restore_context() const {
    schedule::restore_context(header_, mode_, control_.data());
}

void WorkerSegments::add_own(Handles& handles) const {
    for (const Segment* segment : {&window_, &two_phase_, &control_, &metrics_}) {
        add(*segment, handles);
    }
}

void WorkerSegments::add_shared(Handles& handles) const {
    for (const Segment* segment : {&window_, &two_phase_, &control_}) add(*segment, handles);
}

uint64_t WorkerSegments::total_bytes(const WindowLayout& layout, Role role, Windows windows) {
    const uint64_t always = control_bytes(layout, role) + metrics_bytes(layout, role);
    if (!has_windows(layout, windows)) return always;
    return always + window_bytes(layout, role) + two_phase_bytes(layout, role);
}

}  // namespace afd::schedule
