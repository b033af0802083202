// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/instance_segments.h"

#include "proto/check.h"
#include "schedule/shared_memory/memory_room.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

Result<InstanceSegments> InstanceSegments::create(const std::string& prefix,
                                                  const WindowLayout& layout,
                                                  const InstanceIdentity& identity,
                                                  Windows windows) {
    // Not segment by segment: filling the memory just to find that the last one does not fit would
    // hurt its other users.
    AFD_TRY(check_memory_room("the instance",
                              total_bytes(layout, windows),
                              "lower attention_workers, micro_batches or micro_batch_size"));
    InstanceSegments segments(layout, windows);
    const auto add = [&](Role role, uint32_t count, std::vector<WorkerSegments>& made) -> Result<> {
        for (uint32_t index = 0; index < count; ++index) {
            AFD_ASSIGN(WorkerSegments worker,
                       WorkerSegments::create(prefix, layout, identity, role, index, windows));
            made.push_back(std::move(worker));
        }
        return {};
    };
    AFD_TRY(add(Role::kAttention, layout.geometry.num_sessions, segments.attention_));
    AFD_TRY(add(Role::kFfn, layout.geometry.num_ffn_workers, segments.ffn_));
    return segments;
}

const WorkerSegments& InstanceSegments::worker(Role role, uint32_t index) const {
    AFD_ASSERT(
        index < workers(role).size(), "worker %u of %zu of its role", index, workers(role).size());
    return workers(role)[index];
}

void InstanceSegments::restore(Role role, uint32_t index) const {
    for (const Role each : {Role::kAttention, Role::kFfn}) {
        for (const WorkerSegments& one : workers(each)) one.restore_header();
    }
    worker(role, index).restore_context();
}

ConstControlView InstanceSegments::attention_control(uint32_t session) const {
    return worker(Role::kAttention, session).control();
}

ConstControlView InstanceSegments::ffn_control(uint32_t rank) const {
    return worker(Role::kFfn, rank).control();
}

void InstanceSegments::set_run_flag(Role role, uint32_t index, bool runs) const {
    worker(role, index).words().set_run_flag(runs);
}

std::span<std::byte> InstanceSegments::attention_metrics(uint32_t session) const {
    return worker(Role::kAttention, session).metrics();
}

std::span<std::byte> InstanceSegments::ffn_metrics(uint32_t rank) const {
    return worker(Role::kFfn, rank).metrics();
}

const std::byte* InstanceSegments::ffn_window(uint32_t rank) const {
    return worker(Role::kFfn, rank).window();
}

LaneWords InstanceSegments::lane_words(uint32_t rank,
                                       uint32_t session,
                                       uint32_t micro_batch) const {
    const int32_t* descriptor =
        words_at(ffn_window(rank), layout_.descriptor_offset(session, micro_batch));
    const int32_t* acknowledged =
        ffn_control(rank).word_at(layout_.acknowledged_offset(session, micro_batch));
    LaneWords words;
    // First: an acknowledgement is never of a later round than the one that is shown with it.
    words.acknowledged = observe(*acknowledged, Order::kAcquire);
    words.round = observe(descriptor[0], Order::kAcquire);
    words.layer_id = load_once(descriptor[1]);
    return words;
}

WorkerSegments::Handles InstanceSegments::handles(Role role, uint32_t index) const {
    WorkerSegments::Handles handles;
    worker(role, index).add_own(handles);
    if (windows_ == Windows::kPrivate) return handles;
    const Role peer_role = role == Role::kFfn ? Role::kAttention : Role::kFfn;
    for (const WorkerSegments& peer : workers(peer_role)) peer.add_shared(handles);
    return handles;
}

uint64_t InstanceSegments::total_bytes(const WindowLayout& layout, Windows windows) {
    const uint64_t of_session = WorkerSegments::total_bytes(layout, Role::kAttention, windows);
    const uint64_t of_rank = WorkerSegments::total_bytes(layout, Role::kFfn, windows);
    return layout.geometry.num_sessions * of_session + layout.geometry.num_ffn_workers * of_rank;
}

}  // namespace afd::schedule
