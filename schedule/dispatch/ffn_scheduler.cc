// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/ffn_scheduler.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace afd::schedule {

std::string_view name_of(FfnPolicy policy) {
    switch (policy) {
        case FfnPolicy::kAny:
            return "any";
        case FfnPolicy::kGather:
            return "gather";
        case FfnPolicy::kAll:
            return "all";
        case FfnPolicy::kGroups:
            return "groups";
    }
    return "unknown";
}

FfnScheduler::FfnScheduler(const FfnSchedulerConfig& config) : config_(config) {
    AFD_ASSERT(
        config.num_sessions > 0 && config.num_micro_batches > 0 && config.sync_group_size > 0,
        "%u sessions, %u micro-batches, groups of %u",
        config.num_sessions,
        config.num_micro_batches,
        config.sync_group_size);
    const size_t num_sessions = config.num_sessions;
    lane_ready_us_.assign(num_sessions * config.num_micro_batches, kNever);
    session_ready_us_.assign(num_sessions, kNever);
    oldest_.resize(num_sessions);
    same_layer_.resize(num_sessions);
    leader_.resize(num_sessions);
    taken_.reserve(num_sessions);
}

std::span<const ReadyDescriptor> FfnScheduler::decide(uint64_t now_us,
                                                      std::span<const ReadyDescriptor> ready,
                                                      bool running) {
    taken_.clear();
    decide_again_us_ = kNever;
    waits_for_session_.reset();
    if (!running) return taken_;
    note_activity(ready);
    switch (config_.policy) {
        case FfnPolicy::kAny:
            take_any(ready);
            break;
        case FfnPolicy::kGather:
            take_gathered(now_us, ready, config_.num_sessions);
            break;
        case FfnPolicy::kGroups:
            take_gathered(now_us, ready, config_.sync_group_size);
            break;
        case FfnPolicy::kAll:
            take_all(now_us, ready);
            break;
    }
    // By first readiness, whatever the policy: the order of a pass does not follow session numbers,
    // so no session is always served first. Bits do not depend on it.
    std::sort(taken_.begin(), taken_.end(), [](const auto& a, const auto& b) {
        return a.order < b.order;
    });
    return taken_;
}

void FfnScheduler::note_activity(std::span<const ReadyDescriptor> ready) {
    for (const ReadyDescriptor& descriptor : ready) {
        const size_t lane =
            size_t{descriptor.session} * config_.num_micro_batches + descriptor.micro_batch;
        uint64_t& lane_us = lane_ready_us_[lane];
        uint64_t& session_us = session_ready_us_[descriptor.session];
        // kNever is the largest number, so it has to be told apart before max() is taken.
        lane_us = lane_us == kNever ? descriptor.ready_us : std::max(lane_us, descriptor.ready_us);
        session_us =
            session_us == kNever ? descriptor.ready_us : std::max(session_us, descriptor.ready_us);
    }
}

void FfnScheduler::take_any(std::span<const ReadyDescriptor> ready) {
    std::fill(oldest_.begin(), oldest_.end(), nullptr);
    for (const ReadyDescriptor& descriptor : ready) {
        // `ready` ascends by first readiness, so the first of a session is its oldest. More than
        // one of a session cannot go in a pass: the output buffers have a row for each session.
        if (oldest_[descriptor.session] != nullptr) continue;
        oldest_[descriptor.session] = &descriptor;
        taken_.push_back(descriptor);
    }
}

void FfnScheduler::take_gathered(uint64_t now_us,
                                 std::span<const ReadyDescriptor> ready,
                                 uint32_t group_size) {
    std::fill(oldest_.begin(), oldest_.end(), nullptr);
    std::fill(same_layer_.begin(), same_layer_.end(), nullptr);
    std::fill(leader_.begin(), leader_.end(), nullptr);
    for (const ReadyDescriptor& descriptor : ready) {
        const ReadyDescriptor*& oldest = oldest_[descriptor.session];
        const ReadyDescriptor*& leader = leader_[descriptor.session / group_size];
        if (oldest == nullptr) oldest = &descriptor;
        // The group's oldest descriptor leads: its deadline bounds the wait, and its layer is what
        // the others are asked for. Any other choice would let an old descriptor wait for young
        // ones.
        if (leader == nullptr) leader = &descriptor;
        const ReadyDescriptor*& same_layer = same_layer_[descriptor.session];
        if (same_layer == nullptr && descriptor.layer_id == leader->layer_id) {
            same_layer = &descriptor;
        }
    }
    for (uint32_t begin = 0; begin < config_.num_sessions; begin += group_size) {
        const uint32_t end = std::min(config_.num_sessions - begin, group_size) + begin;
        const ReadyDescriptor* leader = leader_[begin / group_size];
        if (leader != nullptr) take_group(now_us, begin, end, *leader);
    }
}

void FfnScheduler::take_group(uint64_t now_us,
                              uint32_t begin,
                              uint32_t end,
                              const ReadyDescriptor& leader) {
    for (uint32_t session = begin; session < end && !is_overdue(now_us, leader); ++session) {
        // Only for a session that was active lately. Waiting for all would charge the deadline to
        // every pass as soon as one of them is idle or dead.
        if (oldest_[session] == nullptr && is_active(now_us, session_ready_us_[session])) {
            wait_until(leader.ready_us + config_.deadline_us, session);
            return;
        }
    }
    for (uint32_t session = begin; session < end; ++session) {
        const ReadyDescriptor* oldest = oldest_[session];
        if (oldest == nullptr) continue;
        const ReadyDescriptor* same_layer = same_layer_[session];
        // Sharing a layer's weights is worth a reordering, but none beyond the deadline: otherwise
        // a stream of young descriptors of one layer would starve an old one of another.
        const bool is_late = is_overdue(now_us, *oldest);
        taken_.push_back(is_late || same_layer == nullptr ? *oldest : *same_layer);
    }
}

void FfnScheduler::take_all(uint64_t now_us, std::span<const ReadyDescriptor> ready) {
    if (ready.empty()) {
        turn_started_us_ = kNever;
        return;
    }
    if (turn_started_us_ == kNever) turn_started_us_ = now_us;
    // A micro-batch that nobody is active in passes at once; M turns see each of them.
    for (uint32_t turn = 0; turn < config_.num_micro_batches && taken_.empty(); ++turn) {
        if (!take_turn(now_us, ready)) return;
    }
}

// Plays the turn of polling_index; false while it waits.
bool FfnScheduler::take_turn(uint64_t now_us, std::span<const ReadyDescriptor> ready) {
    std::fill(oldest_.begin(), oldest_.end(), nullptr);
    for (const ReadyDescriptor& descriptor : ready) {
        if (descriptor.micro_batch == polling_index_) oldest_[descriptor.session] = &descriptor;
    }
    const uint64_t end_us = turn_started_us_ + config_.deadline_us;
    for (uint32_t session = 0; session < config_.num_sessions && now_us < end_us; ++session) {
        const size_t lane = size_t{session} * config_.num_micro_batches + polling_index_;
        if (oldest_[session] == nullptr && is_active(now_us, lane_ready_us_[lane])) {
            wait_until(end_us, session);
            return false;
        }
    }
    for (const ReadyDescriptor* descriptor : oldest_) {
        if (descriptor != nullptr) taken_.push_back(*descriptor);
    }
    // Also when nothing was taken. A policy that moves on only after taking something waits for
    // ever for an idle session (the specification, section 3).
    polling_index_ = (polling_index_ + 1) % config_.num_micro_batches;
    // The time that executing takes is not charged to the next turn.
    turn_started_us_ = taken_.empty() ? now_us : kNever;
    return true;
}

bool FfnScheduler::is_overdue(uint64_t now_us, const ReadyDescriptor& descriptor) const {
    return now_us >= descriptor.ready_us + config_.deadline_us;
}

bool FfnScheduler::is_active(uint64_t now_us, uint64_t last_ready_us) const {
    // No wrap: readiness was noted at a scan, which is never later than the decision's clock.
    return last_ready_us != kNever && now_us - last_ready_us <= config_.active_us;
}

void FfnScheduler::wait_until(uint64_t time_us, uint32_t session) {
    if (time_us >= decide_again_us_) return;
    decide_again_us_ = time_us;
    waits_for_session_ = session;
}

}  // namespace afd::schedule
