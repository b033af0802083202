// SPDX-License-Identifier: Apache-2.0
#pragma once

// Afdd: one instance, from its configuration to its exit code. Takes the instance name, opens the
// model, creates the segments, starts supervisor and gateway, and runs the one libuv loop until a
// signal or a client asks it to end.
//
// Order of life: lock, segments, workers; and back. The segments outlive every worker process.

#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/afdd/instance_lock.h"
#include "daemon/config/config.h"
#include "daemon/gateway/front_end.h"
#include "daemon/gateway/gateway.h"
#include "daemon/gateway/gateway_host.h"
#include "daemon/loop/event_loop.h"
#include "daemon/program/exit_codes.h"
#include "daemon/supervisor/supervisor.h"
#include "daemon/supervisor/two_phase_segments.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/numeric_class.h"
#include "proto/socket_path.h"
#include "schedule/expert_placement.h"
#include "schedule/instance_segments.h"

namespace afd::daemon {

class Afdd final : private GatewayHost, private InstanceListener {
  public:
    // `worker_directory`: where the two worker programs are.
    Afdd(Config config, std::string worker_directory);

    // Serves until it is asked to end; logs why it could not. Once.
    ExitCode run();

  private:
    Result<> take_instance();
    Result<> open_model();
    Result<> plan();
    Result<> choose_weight_cache();
    Result<> create_segments();
    Result<> list_rank_experts();
    Result<> create_supervisor();
    Result<> create_gateway();
    Result<> create_front_ends();
    void watch_signals();
    void serve();

    void fill_status(client::Status& status) const override;
    Result<> answer_context(const client::GetContext& asked, client::Context& answer) override;
    void on_stop_asked() override;
    void on_drained() override;
    void on_all_ready() override;
    void on_given_up(const std::string& why) override;
    void on_all_gone() override;

    ExitCode fail(ExitCode code, const Error& error);
    control::Welcome common_welcome() const;
    std::vector<TraceSource> trace_sources() const;
    void drain(const char* why);
    void end(ExitCode code, uint64_t grace_ms);

    const Config config_;
    const std::string worker_directory_;
    const uint64_t started_us_;
    EventLoop loop_;
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
    std::unique_ptr<schedule::InstanceSegments> segments_;
    std::vector<std::set<uint32_t>> rank_experts_;      // [F], logical.
    std::optional<control::ExpertTable> expert_table_;  // Absent: the built-in placement.
    std::unique_ptr<TwoPhaseSegments> two_phase_segments_;
    std::unique_ptr<Supervisor> supervisor_;
    std::unique_ptr<Gateway> gateway_;
    std::vector<std::unique_ptr<FrontEnd>> front_ends_;
    std::vector<std::unique_ptr<SignalWatcher>> signals_;
    Timer drain_timer_;
    bool draining_ = false;
    bool ending_ = false;
    ExitCode exit_code_ = ExitCode::kOk;
};

}  // namespace afd::daemon
