// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceSetup: what an instance has before its first worker starts: its name, the opened model,
// the plan (kernels, cores, who holds which expert) and the segments. It runs nothing; that is
// Afdd. What a worker makes out of it is WorkerSetup (daemon/worker/worker_setup.h).
//
// Made in steps, because each has an exit code of its own. What is made stays as it is until the
// end; the segments outlive every worker process.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/afdd/instance_lock.h"
#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/loop/unique_fd.h"
#include "daemon/supervisor/service_state.h"
#include "daemon/supervisor/two_phase_segments.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/numeric_class.h"
#include "proto/control.pb.h"
#include "proto/socket_path.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/shared_memory/instance_segments.h"

namespace afd::daemon {

class InstanceSetup {
  public:
    // REQUIRES: `config` outlives it.
    explicit InstanceSetup(const Config& config) : config_(config) {}

    // The steps, each once and in this order.
    // Errors: kAlreadyExists: another afdd holds the name. Else what is wrong with the name or the
    // runtime directory.
    Result<> take_instance();
    // Errors: those of the model's files.
    Result<> open_model();
    // Errors: kInvalidArgument and others: an option that this machine or model cannot follow.
    Result<> plan();
    // Errors: kInvalidArgument: the configuration; else shared memory.
    Result<> create_segments();

    // Everything of a Welcome that does not depend on the worker. REQUIRES, as all that follow: the
    // steps were taken.
    control::Welcome common_welcome() const;
    const InstancePaths& paths() const { return paths_; }
    const model::ModelFiles& model() const { return *model_; }
    model::Tokenizer& tokenizer() { return *tokenizer_; }
    const CpuPlan& cpus() const { return cpus_; }
    const schedule::InstanceIdentity& identity() const { return identity_; }
    const schedule::InstanceSegments& segments() const { return *segments_; }
    // The logical experts that the rank holds of any MoE layer.
    const std::set<uint32_t>& rank_experts(uint32_t rank) const { return rank_experts_[rank]; }
    // For the plan of the supervisor.
    CanDoWithout can_do_without() const;
    // What a worker attaches to: name and descriptor, which stay this object's.
    std::vector<std::pair<std::string, int>> handles(schedule::Role role, uint32_t index) const;
    // What the segments of workers take of /dev/shm.
    uint64_t segment_bytes() const { return segment_bytes_; }
    TwoPhaseSegments& two_phase_segments() { return *two_phase_segments_; }

  private:
    Result<> choose_weight_cache();
    Result<> list_rank_experts();
    Result<> create_vocabulary();

    const Config& config_;
    InstancePaths paths_;
    std::optional<InstanceLock> lock_;
    std::optional<model::ModelFiles> model_;
    std::optional<model::Tokenizer> tokenizer_;
    ops::NumericClass numeric_class_ = ops::NumericClass::kPortable;
    CpuPlan cpus_;
    std::string weight_cache_directory_;  // Empty: off.
    uint64_t instance_id_ = 0;
    schedule::InstanceIdentity identity_;
    std::string segment_prefix_;
    uint64_t segment_bytes_ = 0;
    std::unique_ptr<schedule::InstanceSegments> segments_;
    UniqueFd vocabulary_;  // The image of the vocabulary's trie (daemon/worker/vocabulary_file.h).
    std::vector<std::set<uint32_t>> rank_experts_;        // [F], logical.
    std::optional<schedule::ExpertPlacement> placement_;  // Absent: colocated.
    std::optional<control::ExpertTable> expert_table_;    // Absent: the built-in placement.
    std::unique_ptr<TwoPhaseSegments> two_phase_segments_;
};

}  // namespace afd::daemon
