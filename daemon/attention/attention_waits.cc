// SPDX-License-Identifier: Apache-2.0

// How the attention loop waits: until a peer answers, never beyond a deadline (R7).

#include <unistd.h>

#include <algorithm>
#include <string>

#include "daemon/attention/attention_loop.h"

namespace afd::daemon {
namespace {

// How often a waiting loop looks at its deadlines even if nobody rings.
constexpr uint64_t kTickUs = 100'000;
// A wait that goes on is reported again after this long.
constexpr uint64_t kReportAgainUs = 10'000'000;

}  // namespace

bool AttentionLoop::may_progress(schedule::Order order) const {
    if (held_ == nullptr ? parts_.port->has_command() : has_event_room()) return true;
    return std::any_of(
        micro_batches_.begin(), micro_batches_.end(), [&](const MicroBatch& micro_batch) {
            switch (micro_batch.stage) {
                case MicroBatch::Stage::kIdle:
                    // Also a lane that nobody wants now: that it was blocked has been reported.
                    return (micro_batch.wants_lane ||
                            (micro_batch.wait_reported_us != 0 && has_event_room())) &&
                           micro_batch.lane().is_answered(order);
                // Either they could go on in this turn, or they wait for another micro-batch of
                // this loop, whose own answer wakes it.
                case MicroBatch::Stage::kAttention:
                case MicroBatch::Stage::kHead:
                    return false;
                case MicroBatch::Stage::kDispatch:
                case MicroBatch::Stage::kExperts:
                    return micro_batch.lane().is_answered(order);
            }
            return false;
        });
}

void AttentionLoop::wait_for_peers() {
    // A process that was stopped has not waited: its peers may have been stopped with it.
    const uint64_t now_us = lived_.at(parts_.now_us());
    watch_waits(now_us);
    if (is_stopping_) return;
    const bool is_idle = sequences_.active().empty();
    if (is_idle) {
        parts_.heartbeat.set_idle();
    } else {
        for (const MicroBatch& micro_batch : micro_batches_) {
            if (micro_batch.wait_start_us == 0) continue;
            // Asked at every tick, so that a report can tell the age of the peer's heartbeat.
            const auto wait = micro_batch.lane().waits_for(now_us);
            if (wait) parts_.heartbeat.set_waiting(wait->info);
        }
    }
    parts_.port->flush();
    // Nobody rings when the control thread has read events, for which an admission waits.
    const bool is_quiet = is_idle && held_ == nullptr;
    const uint64_t deadline_us = schedule::steady_now_us() + (is_quiet ? kIdleTickUs : kTickUs);
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint64_t sleeps_before = wait_.num_sleeps();
    expects_answer_ = wait_.until(
        deadline_us, expects_answer_, [&](schedule::Order order) { return may_progress(order); });
    probe_.waited(start_ns, is_idle, wait_.num_sleeps() != sleeps_before);
}

// R7: every wait for a peer is reported when it lasts, and ends the requests when it lasts too
// long. The lane itself stays blocked until it is acknowledged.
void AttentionLoop::watch_waits(uint64_t now_us) {
    for (MicroBatch& micro_batch : micro_batches_) watch_wait(micro_batch, now_us);
    for (Sequence* sequence : sequences_.active()) watch_blocked(*sequence, now_us);
}

void AttentionLoop::watch_wait(MicroBatch& micro_batch, uint64_t now_us) {
    using Stage = MicroBatch::Stage;
    const bool has_rows =
        micro_batch.stage == Stage::kDispatch || micro_batch.stage == Stage::kExperts;
    if (!has_rows && !is_awaited(micro_batch)) {
        if (micro_batch.stage == Stage::kIdle) end_wait_unless_blocked(micro_batch);
        return;
    }
    if (micro_batch.wait_start_us == 0) micro_batch.wait_start_us = now_us;
    const uint64_t waited_us = now_us - micro_batch.wait_start_us;
    // A report of an earlier wait for the same lane says nothing about this one.
    const bool is_reported = micro_batch.wait_reported_us >= micro_batch.wait_start_us;
    if (has_rows && waited_us >= settings_.round_timeout_us) {
        const std::string text = describe(micro_batch, now_us);
        report_wait(micro_batch, now_us);
        probe_.timed_out();
        fail(micro_batch, Code::kDeadlineExceeded, text.c_str());
    } else if (waited_us >= settings_.wait_report_us &&
               (!is_reported || now_us - micro_batch.wait_reported_us >= kReportAgainUs)) {
        report_wait(micro_batch, now_us);
    }
}

// A request without rows on their way, all of whose lanes are blocked or busy: they may be
// those of calls that timed out, and the prefix that it awaits that of their requests. Its own
// clock: it may have come long after they did.
void AttentionLoop::watch_blocked(Sequence& sequence, uint64_t now_us) {
    const MicroBatch* blocked = blocked_lane_of(sequence);
    if (blocked == nullptr) {
        sequence.blocked_since_us = 0;
        return;
    }
    if (sequence.blocked_since_us == 0) sequence.blocked_since_us = now_us;
    if (now_us - sequence.blocked_since_us < settings_.round_timeout_us) return;
    mark_ending(
        sequence, Code::kDeadlineExceeded, ("no slot: " + describe(*blocked, now_us)).c_str());
}

// An idle micro-batch for whose lane the sequence waits; null: there is none.
const MicroBatch* AttentionLoop::blocked_lane_of(const Sequence& sequence) const {
    const auto blocked = std::find_if(
        micro_batches_.begin(), micro_batches_.end(), [&](const MicroBatch& micro_batch) {
            return is_awaited_by(micro_batch, sequence);
        });
    return blocked == micro_batches_.end() ? nullptr : &*blocked;
}

// Whether somebody waits for the lane of an idle micro-batch.
bool AttentionLoop::is_awaited(const MicroBatch& micro_batch) const {
    const auto& active = sequences_.active();
    return std::any_of(active.begin(), active.end(), [&](const Sequence* sequence) {
        return is_awaited_by(micro_batch, *sequence);
    });
}

// Whether the micro-batch is idle and would take rows of the sequence, which has none on their way,
// if its lane were free. One that awaits its prefix has no rows yet: while somebody may compute for
// it, it waits for that one, and else for a lane like those that have some.
bool AttentionLoop::is_awaited_by(const MicroBatch& micro_batch, const Sequence& sequence) const {
    const bool is_blocked = micro_batch.stage == MicroBatch::Stage::kIdle && micro_batch.wants_lane;
    if (!is_blocked || sequence.num_in_flight > 0) return false;
    const LaneRows rows = micro_batch.lane().traits().rows;
    if (!sequence.awaits_prefix) return batcher_.takes(rows, sequence);
    return rows == LaneRows::kAny && !sequence.is_ending && is_nobody_computing();
}

// Whether no rows are on their way, and every lane that takes any is blocked.
bool AttentionLoop::is_nobody_computing() const {
    return std::all_of(
        micro_batches_.begin(), micro_batches_.end(), [](const MicroBatch& micro_batch) {
            const bool takes_any = micro_batch.lane().traits().rows == LaneRows::kAny;
            return micro_batch.stage == MicroBatch::Stage::kIdle &&
                   (micro_batch.wants_lane || !takes_any);
        });
}

std::string AttentionLoop::describe(const MicroBatch& micro_batch, uint64_t now_us) const {
    const auto wait = micro_batch.lane().waits_for(now_us);
    if (!wait) return {};
    return describe(*wait) + "; " + schedule::describe_peer(wait->peer);
}

std::string AttentionLoop::describe(const LaneWait& wait) const {
    return schedule::describe_wait(
        schedule::Role::kAttention, settings_.session, getpid(), wait.info, wait.peer);
}

void AttentionLoop::report_wait(MicroBatch& micro_batch, uint64_t now_us) {
    WorkerEvent event{.kind = WorkerEvent::Kind::kWait};
    if (const auto wait = micro_batch.lane().waits_for(now_us)) {
        event.set_wait(describe(*wait),
                       static_cast<uint32_t>(wait->info.peer),
                       schedule::describe_peer(wait->peer));
    }
    if (push_wait(std::move(event))) micro_batch.wait_reported_us = now_us;
}

void AttentionLoop::end_wait(MicroBatch& micro_batch) {
    micro_batch.wait_start_us = 0;
    if (micro_batch.wait_reported_us == 0) return;
    // The status has one wait for the worker: it is over when those of all micro-batches are.
    const bool is_last =
        std::none_of(micro_batches_.begin(), micro_batches_.end(), [&](const MicroBatch& other) {
            return &other != &micro_batch && other.wait_reported_us != 0;
        });
    // What finds no room is said the next time: a wait that is over must not stay in the status.
    if (!is_last || push_wait({.kind = WorkerEvent::Kind::kWait})) micro_batch.wait_reported_us = 0;
}

// The rows are gone, and nobody waits for an answer any more. But a lane that stays blocked blocks
// the next rows too: the wait goes on, so that who hands out requests takes another worker.
void AttentionLoop::end_wait_unless_blocked(MicroBatch& micro_batch) {
    micro_batch.wait_start_us = 0;
    if (micro_batch.lane().is_free()) end_wait(micro_batch);
}

// False if every place that is left is promised to tokens and ends.
bool AttentionLoop::push_wait(WorkerEvent event) {
    return has_event_room() && parts_.port->push(std::move(event));
}

}  // namespace afd::daemon
