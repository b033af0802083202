// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnScheduler: the built-in PassScheduler. A pass takes at most one descriptor per session. The
// live path, over what schedule/dispatch/ready_scan.h has found;
// ops/operators/ffn_worker_scheduler.h is the stateless operator that stands alone. Policies:
//   any     everything that is ready now, each session's oldest, in the order of first readiness.
//   gather  as any, but first waits, up to deadline_us after the oldest descriptor became ready,
//           until every active session has one; a session's descriptor of the oldest one's layer
//           is preferred, because tokens share an expert's weights only within a layer.
//   all     micro-batch polling_index only: waits for every session that is active in it, up to
//           deadline_us after its turn began; then takes what is ready of it and always advances
//           polling_index. No turn begins while nothing is ready; a micro-batch without an active
//           session is passed over.
//   groups  gather within groups of sync_group_size consecutive sessions, each group on its own.
//
// A session (for `all`: a session's micro-batch) is active if one of its descriptors became ready
// within the last active_us. So one that is dead, idle or late delays a pass by at most
// deadline_us, and after active_us not at all.
//
// No starvation: a descriptor older than deadline_us is taken before any younger one of its
// session; every pass of any, gather and groups takes one of each session it serves; `all` visits
// every micro-batch in turn.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/dispatch/pass_scheduler.h"

namespace afd::schedule {

enum class FfnPolicy { kAny, kGather, kAll, kGroups };
// "any", "gather", "all", "groups".
std::string_view name_of(FfnPolicy policy);

struct FfnSchedulerConfig {
    FfnPolicy policy = FfnPolicy::kGather;
    uint32_t num_sessions = 1;
    uint32_t num_micro_batches = 1;
    uint64_t deadline_us = 200;
    uint64_t active_us = 50000;
    uint32_t sync_group_size = 1;  // Policy groups only.
};

class FfnScheduler final : public PassScheduler {
  public:
    // REQUIRES: num_sessions, num_micro_batches and sync_group_size are at least 1.
    explicit FfnScheduler(const FfnSchedulerConfig& config);

    std::span<const ReadyDescriptor> decide(uint64_t now_us,
                                            std::span<const ReadyDescriptor> ready,
                                            bool running) override;
    uint64_t decide_again_us() const override { return decide_again_us_; }
    std::optional<uint32_t> waits_for_session() const override { return waits_for_session_; }

    // The micro-batch that policy `all` takes next.
    uint32_t polling_index() const { return polling_index_; }

  private:
    void note_activity(std::span<const ReadyDescriptor> ready);
    void take_any(std::span<const ReadyDescriptor> ready);
    void take_gathered(uint64_t now_us,
                       std::span<const ReadyDescriptor> ready,
                       uint32_t group_size);
    void take_group(uint64_t now_us, uint32_t begin, uint32_t end, const ReadyDescriptor& leader);
    void take_all(uint64_t now_us, std::span<const ReadyDescriptor> ready);
    bool take_turn(uint64_t now_us, std::span<const ReadyDescriptor> ready);
    bool is_overdue(uint64_t now_us, const ReadyDescriptor& descriptor) const;
    bool is_active(uint64_t now_us, uint64_t last_ready_us) const;
    void wait_until(uint64_t time_us, uint32_t session);

    FfnSchedulerConfig config_;
    uint32_t polling_index_ = 0;
    uint64_t turn_started_us_ = kNever;  // Policy all: first decision of the turn.
    uint64_t decide_again_us_ = kNever;
    std::optional<uint32_t> waits_for_session_;
    std::vector<uint64_t> lane_ready_us_;     // [A][M]: last first readiness, kNever: none yet.
    std::vector<uint64_t> session_ready_us_;  // [A], likewise.
    // Of the decision in work: each session's oldest ready descriptor, its oldest of the group
    // leader's layer, and each group's oldest.
    std::vector<const ReadyDescriptor*> oldest_;      // [A]
    std::vector<const ReadyDescriptor*> same_layer_;  // [A]
    std::vector<const ReadyDescriptor*> leader_;      // [A]
    std::vector<ReadyDescriptor> taken_;              // Capacity A.
};

}  // namespace afd::schedule
