// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/transport/toy_machines.h"
#include "schedule/context/fresh_memory.h"

#include <array>
#include <atomic>

namespace afd::schedule {

namespace {

// A mirror has one writer, the pump, which keeps to the rule of heartbeat.h: the sequence is odd
// while the description is written.
void mirror_heartbeat(const Bytes& control, HeartbeatWords& mirror) {
    const HeartbeatView view = read_heartbeat(ConstControlView(control.get()).heartbeat_words());
    const int32_t sequence = observe_own(mirror.sequence);
    publish_release(mirror.sequence, sequence + 1);
    publish_release(mirror.pid, view.pid);
    publish_release(mirror.state, static_cast<int32_t>(view.state));
    const std::array<int32_t, 6> wait = {static_cast<int32_t>(view.wait.kind),
                                         view.wait.peer,
                                         view.wait.micro_batch,
                                         view.wait.layer_id,
                                         view.wait.flag_seen,
                                         view.wait.flag_expected};
    for (size_t i = 0; i < wait.size(); ++i) publish_release(mirror.wait[i], wait[i]);
    publish_release(mirror.sequence, sequence + 2);
    // Release; partner: the acquire loads of read_heartbeat().
    std::atomic_ref(mirror.progress).store(view.progress, std::memory_order_release);
}

std::vector<Bytes> stripes(size_t count, uint64_t bytes) {
    std::vector<Bytes> made;
    for (size_t i = 0; i < count; ++i) made.push_back(zeroed_bytes(bytes));
    return made;
}

}  // namespace

ToyMachines::ToyMachines(const Geometry& geometry, uint64_t seed)
    : layout_(WindowLayout::compute(geometry).value()),
      two_phase_layout_(TwoPhaseControlLayout::compute(geometry)),
      session_doorbells_(geometry.num_sessions),
      rank_doorbells_(geometry.num_ffn_workers),
      sessions_(geometry.num_sessions),
      ranks_(geometry.num_ffn_workers),
      wire_(seed, [this] { mirror_heartbeats(); }) {
    wire_.while_still([&] {
        for (uint32_t s = 0; s < num_sessions(); ++s) format_session(s);
        for (uint32_t f = 0; f < num_ranks(); ++f) format_rank(f);
    });
}

void ToyMachines::format_session(uint32_t index) {
    const Geometry& geometry = layout_.geometry;
    ToySession& machine = sessions_[index];
    machine.window = zeroed_bytes(layout_.attention_window.total_bytes);
    machine.control = zeroed_bytes(layout_.attention_control_bytes);
    format_control(make_segment_header(geometry, test_identity(), Role::kAttention, index).value(),
                   ScheduleMode::kAttention,
                   machine.control.get());
    machine.published.assign(ranks_.size(), std::vector<int32_t>(geometry.num_micro_batches));
    machine.acknowledged = machine.published;
    machine.ranks.resize(ranks_.size());
    machine.two_phase.own = stripes(ranks_.size(), two_phase_layout_.session_stripe_bytes);
    machine.two_phase.mirrors = stripes(ranks_.size(), two_phase_layout_.rank_stripe_bytes);
}

void ToyMachines::format_rank(uint32_t index) {
    ToyRank& machine = ranks_[index];
    machine.window = zeroed_bytes(layout_.ffn_window.total_bytes);
    machine.control = zeroed_bytes(layout_.ffn_control.total_bytes);
    format_ffn_window(layout_, machine.window.get());
    format_control(
        make_segment_header(layout_.geometry, test_identity(), Role::kFfn, index).value(),
        ScheduleMode::kFfn,
        machine.control.get());
    machine.sessions.resize(sessions_.size());
    machine.two_phase.own = stripes(sessions_.size(), two_phase_layout_.rank_stripe_bytes);
    machine.two_phase.mirrors = stripes(sessions_.size(), two_phase_layout_.session_stripe_bytes);
}

// Runs on the pump, before the machines are made as well.
void ToyMachines::mirror_heartbeats() {
    for (size_t s = 0; s < sessions_.size(); ++s) {
        for (size_t f = 0; f < ranks_.size(); ++f) {
            if (!sessions_[s].control || !ranks_[f].control) continue;
            mirror_heartbeat(ranks_[f].control, sessions_[s].ranks[f]);
            mirror_heartbeat(sessions_[s].control, ranks_[f].sessions[s]);
        }
    }
}

Doorbell ToyMachines::doorbell(Role role, uint32_t index) const {
    const bool is_ffn = role == Role::kFfn;
    const Bytes& control = is_ffn ? ranks_[index].control : sessions_[index].control;
    return {ControlView(control.get()).armed(),
            is_ffn ? rank_doorbells_[index] : session_doorbells_[index]};
}

void ToyMachines::ring_if_armed(Role role, uint32_t index) const {
    const Bytes& control = role == Role::kFfn ? ranks_[index].control : sessions_[index].control;
    DoorbellRinger(ConstControlView(control.get()).armed(), doorbell(role, index).eventfd())
        .ring_if_armed();
}

}  // namespace afd::schedule
