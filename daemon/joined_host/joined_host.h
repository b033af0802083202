// SPDX-License-Identifier: Apache-2.0
#pragma once

// JoinedHost: `afdd --join`: the afdd of a host that runs workers for a leader (cluster.proto). It
// has the model and the machine, starts the workers that the leader's stand-ins ask for, and knows
// nothing of requests.
//
// The end of the leader is the end of its workers, but not of this: it joins again, and keeps the
// packed experts mapped until then. With leave_with_leader it ends when the leader has ended in
// order, and a signal to end means that the leader has one, too, and drains first.
//
// The leader knows what its workers take here, and refuses a host that has no room for them.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/cluster/certificate_watch.h"
#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_link.h"
#include "daemon/config/config.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/config/listen_address.h"
#include "daemon/instance/digest_thread.h"
#include "daemon/instance/end_signals.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/instance/kept_experts.h"
#include "daemon/instance/service_life.h"
#include "daemon/instance/ucx_network.h"
#include "daemon/joined_host/guests.h"
#include "daemon/joined_host/leader_tie.h"
#include "daemon/joined_host/seat.h"
#include "daemon/loop/acceptor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/program/exit_codes.h"
#include "daemon/program/service_notifier.h"
#include "daemon/supervisor/worker_door.h"
#include "proto/cluster.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class JoinedHost final : private LeaderListener, private SlotOwner {
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
    static constexpr uint64_t kGraceMs = 3000;

    using Place = std::pair<control::Role, uint32_t>;

    ExitCode fail(ExitCode code, const Error& error);
    Result<> open();
    void on_digest(const Result<std::string>& digest);
    // The leader.
    Result<cluster::Join> join_over(const ClusterLink& leader) override;
    Result<> on_joined(const ClusterLink& leader, const cluster::Joined& joined) override;
    Result<> plan_for(const cluster::Joined& joined);
    Result<> choose_network(const std::string& transports);
    void release_cores();
    void on_leader_over() override;
    void on_leader_lost() override;
    void on_leader_missing(const std::string& why) override;
    void on_leader_refuses(const Error& why) override;
    Result<> listen_beside(const ClusterLink& leader);
    // Stand-ins.
    Result<Seat*> seat_of(const cluster::Take& wanted);
    void look_at_cache(const cluster::Take& wanted);
    Result<size_t> free_cpu_index(control::Role role) const;
    Result<> share_cores(Seat& seat, control::Role role);
    Seat::Settings seat_settings(control::Role role, uint32_t index);
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
    Result<> say_room(cluster::Join& join);
    bool has_workers() const;
    void check_all_gone();

    const Config config_;
    const std::string worker_directory_;
    const ServiceNotifier notifier_;
    const std::function<Result<Config>()> reload_;
    EventLoop loop_;
    ServiceLife life_;
    InstanceSetup setup_;
    KeptExperts kept_experts_;  // Of the workers of now, or of the last ones.
    std::optional<ClusterIdentity> identity_;
    std::optional<CertificateWatch> certificate_watch_;
    std::unique_ptr<WorkerDoor> door_;
    std::unique_ptr<DigestThread> digest_thread_;
    std::string model_digest_;  // Empty: not known yet; the leader says to ask again.
    std::unique_ptr<LeaderTie> tie_;
    ListenAddress own_address_;  // Where stand-ins are expected; no host: not yet.
    std::string ucx_host_;       // Of the workers, from then on.
    std::string transports_;     // The leader's, of ucx_network_.
    UcxNetwork ucx_network_;     // Of the workers, once it has joined.
    std::unique_ptr<Acceptor> acceptor_;
    std::unique_ptr<Guests> guests_;
    CpuPlan cpus_;
    uint64_t cpu_plan_ = 1;      // Which of the host's plans cpus_ is (Seat::CpuShare),
    uint64_t claimed_plan_ = 1;  // and the last of which no other's cores were claimed beside.
    std::map<Place, std::unique_ptr<Seat>> seats_;
    std::vector<std::unique_ptr<SignalWatcher>> signals_;
    Timer leave_timer_;
    Timer grace_timer_;
    EndSignals end_signals_;
    std::optional<uint64_t>
        ending_since_ms_;  // Workers that no stand-in wants; none: there are none.
    bool has_looked_at_cache_ = false;
    bool is_leaving_ = false;  // When the leader has drained.
    bool is_ending_ = false;
    ExitCode exit_code_ = ExitCode::kOk;
};

}  // namespace afd::daemon
