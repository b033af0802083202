// SPDX-License-Identifier: Apache-2.0
#pragma once

// JoinedHost: `afdd --join`: the afdd of a host that runs workers for a leader (cluster.proto). It
// has the model and the machine, starts the workers that the leader's stand-ins ask for, and knows
// nothing of requests.
//
// The end of the leader is the end of its workers, but not of this: it joins again. What was read
// of the model stays in the memory of the kernel. With leave_with_leader it ends when the leader
// has ended in order, and a signal to end means that the leader has one, too, and drains first.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_link.h"
#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/config/listen_address.h"
#include "daemon/instance/end_signals.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/instance/service_life.h"
#include "daemon/joined_host/seat.h"
#include "daemon/loop/acceptor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/program/exit_codes.h"
#include "daemon/program/log_limit.h"
#include "daemon/program/service_notifier.h"
#include "daemon/supervisor/worker_door.h"
#include "daemon/tcp/tcp_connector.h"
#include "proto/cluster.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class JoinedHost final : private WorkerHost {
  public:
    // REQUIRES: config.join is set. `worker_directory`: where the worker programs are.
    // `reload`: the configuration as it is now, for SIGHUP.
    JoinedHost(Config config,
               std::string worker_directory,
               ServiceNotifier notifier,
               std::function<Result<Config>()> reload);

    ~JoinedHost() override;

    // Until it is asked to end, or refused. Once.
    ExitCode run();

  private:
    // As HostList has it.
    static constexpr size_t kGuestsMax = 64;
    static constexpr uint64_t kGraceMs = 3000;

    // A connection of a stand-in that has not said what it asks for.
    struct Guest;
    using Place = std::pair<control::Role, uint32_t>;

    ExitCode fail(ExitCode code, const Error& error);
    Result<> open();
    // To the leader.
    void on_connecting(Result<UniqueFd> socket);
    Result<> greet(UniqueFd socket);
    void try_again(const Error& why);
    void on_leader(const Result<>& outcome);
    Result<> take_from_leader();
    Result<> listen_beside_leader();
    Result<> say_join();
    Result<> on_joined(const cluster::Joined& joined);
    void beat();
    // Stand-ins.
    void add_guest(UniqueFd socket);
    bool make_room();
    void warn_of_stranger(const std::string& what);
    void on_guest(Guest& guest, const Result<>& outcome);
    static bool is_of_leader(ClusterLink& link);
    void warn_of_refusal(ClusterLink& link, const Error& why);
    void refuse(Guest& guest, const Error& why);
    Result<> serve(Guest& guest);
    Result<Seat*> seat_of(const cluster::Take& wanted);
    size_t free_plan(control::Role role) const;
    Seat::Settings seat_settings(control::Role role, uint32_t index, const WorkerCpus& cpus);
    // Workers at the door.
    size_t num_workers() const override { return seats_.size(); }
    bool has_process(int pid) const override;
    Result<> give_slot(ControlChannel& channel, const control::Hello& hello, int pid) override;

    void on_signal(int signal);
    void reload();
    Result<> reload_config();
    std::string state_text() const;
    void leave(const char* why);
    void end(ExitCode code);
    void check_all_gone();

    const Config config_;
    const std::string worker_directory_;
    const ServiceNotifier notifier_;
    const std::function<Result<Config>()> reload_;
    EventLoop loop_;
    ServiceLife life_;
    InstanceSetup setup_;
    std::optional<ClusterIdentity> identity_;
    std::unique_ptr<WorkerDoor> door_;
    std::unique_ptr<TcpConnector> connector_;
    std::unique_ptr<ClusterLink> leader_;
    bool has_said_join_ = false;
    bool has_joined_ = false;  // The leader has said yes.
    std::string last_failure_;
    uint64_t failure_said_ms_ = 0;
    ListenAddress own_address_;  // Where stand-ins are expected; no host: not yet.
    std::unique_ptr<Acceptor> acceptor_;
    std::list<Guest> guests_;
    LogLimit strangers_;
    CpuPlan cpus_;
    std::map<Place, std::unique_ptr<Seat>> seats_;
    std::vector<std::unique_ptr<SignalWatcher>> signals_;
    Timer retry_timer_;
    Timer beat_timer_;
    Timer leave_timer_;
    Timer grace_timer_;
    EndSignals end_signals_;
    bool is_leaving_ = false;  // When the leader has drained.
    bool is_ending_ = false;
    ExitCode exit_code_ = ExitCode::kOk;
};

}  // namespace afd::daemon
