// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceLayout: what an instance has for one number of workers: who holds which expert and runs
// on which cores, and the segments. It runs nothing. What does not depend on these numbers is
// InstanceSetup; who works on it is the Crew.
//
// What is made stays as it is until the end of the object, which outlives every worker process.
// A resize makes another one, with an identity of its own: no worker of one can attach to the
// segments of another.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/instance/instance_memory.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/placement/host_plan.h"
#include "daemon/supervisor/service_state.h"
#include "daemon/supervisor/two_phase_segments.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/shared_memory/instance_segments.h"

namespace afd::daemon {

class InstanceLayout {
  public:
    // REQUIRES: `setup` outlives it, and its steps were taken. `config` is its configuration, with
    // the numbers of this layout.
    InstanceLayout(const InstanceSetup& setup, Config config)
        : setup_(setup), config_(std::move(config)), hosts_(config_) {}

    // The steps, each once and in this order. The last two take long and touch nothing but this
    // object and what is constant in the setup, so another thread may do them.
    // Errors: kInvalidArgument and others: an option that this machine or model cannot follow.
    Result<> plan();
    // Cost: that of reading the files and asking the libraries that the user has named.
    // Errors: those of plan_placement() and ask_scheduler_name(), for the user to mend.
    Result<> place_experts();
    // What the workers of this host will take. After place_experts(), on the same thread.
    // Errors: kInvalidArgument: the configuration.
    Result<InstanceMemory> memory() const;
    // The same of another host (memory_on()).
    Result<InstanceMemory> memory_on(const std::string& host, bool has_weight_cache) const;
    // Cost: that of clearing the memory.
    // Errors: kInvalidArgument: the configuration; else shared memory.
    Result<> create_segments();

    // Everything of a Welcome that does not depend on the worker. REQUIRES, as all that follow: the
    // steps were taken.
    control::Welcome common_welcome() const;
    // Adds which ranks hold which experts, unless that worker computes it itself.
    void add_experts(control::Role role, uint32_t index, control::Welcome& welcome) const;
    const Config& config() const { return config_; }
    const InstanceSetup& setup() const { return setup_; }
    const HostPlan& hosts() const { return hosts_; }
    const CpuPlan& cpus() const { return cpus_; }
    const schedule::InstanceIdentity& identity() const { return identity_; }
    const schedule::InstanceSegments& segments() const { return *segments_; }
    // The logical experts that the rank holds of any MoE layer.
    const std::set<uint32_t>& rank_experts(uint32_t rank) const { return rank_experts_[rank]; }
    // For the plan of the supervisor.
    CanDoWithout can_do_without() const;
    // What a worker attaches to: name and descriptor, which stay this object's.
    std::vector<std::pair<std::string, int>> handles(schedule::Role role, uint32_t index) const;
    // The part of the status that is about the scheduling of this layout.
    void fill_status(client::Status& status) const;
    // What the segments of workers take of memory.
    uint64_t segment_bytes() const { return segment_bytes_; }
    TwoPhaseSegments& two_phase_segments() { return *two_phase_segments_; }

  private:
    Result<schedule::WindowLayout> window_layout() const;
    MemorySources memory_sources(const schedule::WindowLayout& layout) const;

    const InstanceSetup& setup_;
    const Config config_;
    const HostPlan hosts_;
    CpuPlan cpus_;
    uint64_t instance_id_ = 0;
    schedule::InstanceIdentity identity_;
    std::string segment_prefix_;
    std::string scheduler_name_;  // Of the library; empty: there is none.
    uint64_t segment_bytes_ = 0;
    std::unique_ptr<schedule::InstanceSegments> segments_;
    std::vector<std::set<uint32_t>> rank_experts_;        // [F], logical.
    std::optional<schedule::ExpertPlacement> placement_;  // Absent: colocated.
    std::unique_ptr<TwoPhaseSegments> two_phase_segments_;
};

}  // namespace afd::daemon
