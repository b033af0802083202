// SPDX-License-Identifier: Apache-2.0
#pragma once

// Afdd: one instance, from its configuration to its exit code. Lets InstanceSetup and Crew prepare
// what the instance is made of, starts supervisor and gateway, and runs the one libuv loop until a
// signal or a client asks it to end. Meanwhile its Resizer may put another crew in the place of the
// one that serves, and its Upgrader another afdd in its own place; that one has a Takeover.
//
// Order of life: lock, segments, workers; and back. The segments outlive every worker process.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/afdd/crew.h"
#include "daemon/afdd/doors.h"
#include "daemon/afdd/heartbeat_line.h"
#include "daemon/afdd/link_watch.h"
#include "daemon/afdd/resizer.h"
#include "daemon/afdd/takeover.h"
#include "daemon/afdd/upgrader.h"
#include "daemon/cluster/host_list.h"
#include "daemon/config/config.h"
#include "daemon/gateway/gateway.h"
#include "daemon/gateway/request/text_thread.h"
#include "daemon/gateway/served_instance.h"
#include "daemon/handover/predecessor.h"
#include "daemon/http/http_services.h"
#include "daemon/instance/digest_thread.h"
#include "daemon/instance/end_signals.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/instance/service_life.h"
#include "daemon/loop/event_loop.h"
#include "daemon/program/exit_codes.h"
#include "daemon/program/service_notifier.h"
#include "daemon/supervisor/attention_workers.h"
#include "daemon/supervisor/supervisor.h"
#include "daemon/supervisor/worker_door.h"

namespace afd::daemon {

class Afdd final : private AttentionWorkers,
                   private ServedInstance,
                   private InstanceListener,
                   private HostListener {
  public:
    // REQUIRES: require_descriptors() (daemon/loop/descriptor_limit.h): the loop opens some.
    struct Surroundings {
        std::vector<std::string> command_line;  // Of this process, the program first.
        std::string worker_directory;           // Where the two worker programs are.
        ServiceNotifier notifier;
        // Reads the configuration again, for what may change while afdd runs.
        std::function<Result<Config>()> reload;
    };
    // `predecessor`: whose place it is to take; null: nobody's.
    Afdd(Config config, Surroundings surroundings, std::unique_ptr<Predecessor> predecessor);

    // Serves until it is asked to end; logs why it could not. Once.
    ExitCode run();

  private:
    // A worker leaves its loop at the next step; more than this and it hangs.
    static constexpr uint64_t kGraceMs = 3000;

    Result<> open_to_hosts();
    void on_digest(const Result<std::string>& digest);
    Result<> hire_crew();
    Result<> create_gateway();
    Result<> open_doors();
    bool open_for_takeover();
    // Null: no HTTP, or not yet.
    HttpServices* http() const { return doors_ == nullptr ? nullptr : doors_->http(); }
    void limit_connections();
    Result<> check_one_host() const;
    Result<> check_undisturbed() const;
    void watch_signals();
    void on_end_signal(int signal);
    void reload();
    Result<> reload_config();
    void say_heartbeat();
    void look_at_links();
    void serve();

    // AttentionWorkers: of the crew that serves.
    void send(uint32_t session, const control::SupervisorMessage& message) override;
    void excuse_deaths() override;

    void fill_status(client::Status& status) const override;
    std::string metrics_text(const client::Status& status,
                             const RequestMetrics& requests,
                             const HopTimes& hops) const override;
    Result<> answer_context(const client::GetContext& asked, client::Context& answer) override;
    Result<> on_resize_asked(const client::Resize& asked) override;
    Result<> on_upgrade_asked() override;
    void on_departed() override { upgrader_->on_departed(); }
    bool has_predecessor() const override { return takeover_ != nullptr && takeover_->is_on(); }
    void on_stop_asked() override;
    void on_drained() override;
    void on_all_ready() override;
    void on_given_up(const std::string& why) override;
    void on_service(const ServiceState& state) override;
    void on_all_gone() override;

    void on_host_joined(const std::string& name) override;
    void on_host_left(const std::string& name) override;

    ExitCode fail(ExitCode code, const Error& error);
    void drain(const char* why);
    void end(ExitCode code, uint64_t grace_ms);

    const Config config_;
    const Surroundings surroundings_;
    const uint64_t started_us_;
    EventLoop loop_;
    ServiceLife life_;
    InstanceSetup setup_;
    std::unique_ptr<Takeover> takeover_;  // Null: it takes nobody's place.
    std::unique_ptr<WorkerDoor> door_;
    std::unique_ptr<HostList> hosts_;              // Null: every worker runs here.
    std::unique_ptr<DigestThread> digest_thread_;  // For the hosts.
    std::unique_ptr<Crew> crew_;                   // That serves.
    std::unique_ptr<TextThread> texts_;
    std::unique_ptr<Resizer> resizer_;  // Outlives the gateway, which may trace its crew.
    std::unique_ptr<Gateway> gateway_;
    std::unique_ptr<Doors> doors_;  // Null: not open yet.
    std::unique_ptr<Upgrader> upgrader_;
    std::vector<std::unique_ptr<SignalWatcher>> signals_;
    EndSignals end_signals_;
    Timer drain_timer_;
    Timer heartbeat_timer_;
    HeartbeatLine heartbeat_;
    Timer link_timer_;
    LinkWatch links_;
    bool draining_ = false;
    bool ending_ = false;
    ExitCode exit_code_ = ExitCode::kOk;
};

}  // namespace afd::daemon
