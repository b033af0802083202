// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/instance_segments.h"

#include <algorithm>
#include <utility>

#include "schedule/context/fresh_memory.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/shared_memory/memory_room.h"

namespace afd::schedule {
namespace {

void unlink(const Segment& segment) {
    // An error in the middle of create() leaves segments that were never made; they have no name.
    if (segment.size() != 0) Segment::unlink(segment.name());
}

}  // namespace

Result<InstanceSegments> InstanceSegments::create(const std::string& prefix,
                                                  const WindowLayout& layout,
                                                  const InstanceIdentity& identity) {
    // Not segment by segment: filling the memory just to find that the last one does not fit would
    // hurt its other users.
    AFD_TRY(check_memory_room("the instance", total_bytes(layout)));
    InstanceSegments segments;
    const Geometry& geometry = layout.geometry;
    for (uint32_t session = 0; session < geometry.num_sessions; ++session) {
        AFD_TRY(segments.add(prefix, layout, identity, Role::kAttention, session));
    }
    for (uint32_t rank = 0; rank < geometry.num_ffn_workers; ++rank) {
        AFD_TRY(segments.add(prefix, layout, identity, Role::kFfn, rank));
    }
    return segments;
}

Result<> InstanceSegments::add(const std::string& prefix,
                               const WindowLayout& layout,
                               const InstanceIdentity& identity,
                               Role role,
                               uint32_t index) {
    const bool is_ffn = role == Role::kFfn;
    const bool has_windows = layout.geometry.num_ffn_workers > 0;
    AFD_ASSIGN(const SegmentHeader header,
               make_segment_header(layout.geometry, identity, role, index));
    // Added before it is complete: on an error the destructor unlinks what exists.
    Worker& worker = (is_ffn ? ffn_ : attention_).emplace_back();
    const auto name = [&](SegmentKind kind) { return segment_name(prefix, role, index, kind); };
    if (has_windows) {
        AFD_ASSIGN(worker.window,
                   Segment::create_sealed(name(SegmentKind::kWindow),
                                          is_ffn ? layout.ffn_window.total_bytes
                                                 : layout.attention_window.total_bytes));
        if (is_ffn) format_ffn_window(layout, worker.window.data());
        const auto two_phase = TwoPhaseControlLayout::compute(layout.geometry);
        AFD_ASSIGN(
            worker.two_phase,
            Segment::create_sealed(name(SegmentKind::kTwoPhase),
                                   is_ffn ? two_phase.rank_bytes() : two_phase.session_bytes()));
    }
    AFD_ASSIGN(worker.control,
               Segment::create_sealed(
                   name(SegmentKind::kControl),
                   is_ffn ? layout.ffn_control.total_bytes : layout.attention_control_bytes));
    AFD_ASSIGN(
        worker.metrics,
        Segment::create_sealed(name(SegmentKind::kMetrics),
                               is_ffn ? layout.ffn_metrics_bytes : layout.attention_metrics_bytes));

    worker.header = header;
    worker.mode = is_ffn        ? ScheduleMode::kFfn
                  : has_windows ? ScheduleMode::kAttention
                                : ScheduleMode::kBoth;
    format_control(header, worker.mode, worker.control.data());
    return {};
}

void InstanceSegments::restore(Role role, uint32_t index) const {
    for (const std::vector<Worker>* workers : {&attention_, &ffn_}) {
        for (const Worker& worker : *workers) {
            ControlView(worker.control.data()).write_header(worker.header);
        }
    }
    const Worker& worker = role == Role::kFfn ? ffn(index) : attention(index);
    restore_context(worker.header, worker.mode, worker.control.data());
}

InstanceSegments::~InstanceSegments() {
    for (const std::vector<Worker>* workers : {&attention_, &ffn_}) {
        for (const Worker& worker : *workers) {
            unlink(worker.window);
            unlink(worker.two_phase);
            unlink(worker.control);
            unlink(worker.metrics);
        }
    }
}

const InstanceSegments::Worker& InstanceSegments::attention(uint32_t session) const {
    AFD_ASSERT(session < attention_.size(), "session %u of %zu", session, attention_.size());
    return attention_[session];
}

const InstanceSegments::Worker& InstanceSegments::ffn(uint32_t rank) const {
    AFD_ASSERT(rank < ffn_.size(), "ffn rank %u of %zu", rank, ffn_.size());
    return ffn_[rank];
}

ConstControlView InstanceSegments::attention_control(uint32_t session) const {
    return ConstControlView(attention(session).control.const_data());
}

ConstControlView InstanceSegments::ffn_control(uint32_t rank) const {
    return ConstControlView(ffn(rank).control.const_data());
}

ContextWords InstanceSegments::words(Role role, uint32_t index) const {
    const Worker& worker = role == Role::kFfn ? ffn(index) : attention(index);
    return ContextWords(ControlView(worker.control.data()).context());
}

void InstanceSegments::set_run_flag(Role role, uint32_t index, bool runs) const {
    words(role, index).set_run_flag(runs);
}

bool InstanceSegments::run_flag(Role role, uint32_t index) const {
    return words(role, index).run_flag();
}

std::span<std::byte> InstanceSegments::attention_metrics(uint32_t session) const {
    const Segment& metrics = attention(session).metrics;
    return {metrics.data(), metrics.size()};
}

std::span<std::byte> InstanceSegments::ffn_metrics(uint32_t rank) const {
    const Segment& metrics = ffn(rank).metrics;
    return {metrics.data(), metrics.size()};
}

std::vector<std::pair<std::string, int>> InstanceSegments::handles(Role role,
                                                                   uint32_t index) const {
    std::vector<std::pair<std::string, int>> handles;
    const auto add = [&](const Segment& segment) {
        if (segment.size() != 0) handles.emplace_back(segment.name(), segment.descriptor());
    };
    const Worker& own = role == Role::kFfn ? ffn(index) : attention(index);
    add(own.window);
    add(own.two_phase);
    add(own.control);
    add(own.metrics);
    for (const Worker& peer : role == Role::kFfn ? attention_ : ffn_) {
        add(peer.window);
        add(peer.two_phase);
        add(peer.control);
    }
    return handles;
}

const std::byte* InstanceSegments::ffn_window(uint32_t rank) const {
    return ffn(rank).window.const_data();
}

const std::byte* InstanceSegments::ffn_control_bytes(uint32_t rank) const {
    return ffn(rank).control.const_data();
}

uint64_t InstanceSegments::total_bytes(const WindowLayout& layout) {
    const uint64_t num_sessions = layout.geometry.num_sessions;
    const uint64_t num_ranks = layout.geometry.num_ffn_workers;
    const auto two_phase = TwoPhaseControlLayout::compute(layout.geometry);
    // Keep in step with add(): this sum is what is compared with the room beforehand.
    const uint64_t window_bytes = num_ranks > 0 ? layout.attention_window.total_bytes : 0;
    return num_sessions * (window_bytes + two_phase.session_bytes() +
                           layout.attention_control_bytes + layout.attention_metrics_bytes) +
           num_ranks * (layout.ffn_window.total_bytes + two_phase.rank_bytes() +
                        layout.ffn_control.total_bytes + layout.ffn_metrics_bytes);
}

}  // namespace afd::schedule
