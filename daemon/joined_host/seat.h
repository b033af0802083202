// SPDX-License-Identifier: Apache-2.0
#pragma once

// Seat: on a host that has joined, the place of one worker: its segments, its process, and the
// connection of the stand-in that asks for it (cluster.proto).
//
//   empty --take()--> starting --Hello--> at work --process gone--> empty
//
// One process at a time: whoever asks while there is one, because its own connection has broken,
// gets the next, when that one is gone. Segments stay for the next process of the same instance,
// which finds in them what its predecessor was at (R11).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/cluster/cluster_link.h"
#include "daemon/control/control_channel.h"
#include "daemon/control/flush_retry.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "daemon/supervisor/worker_process.h"
#include "proto/cluster.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/context/heartbeat.h"
#include "schedule/shared_memory/worker_segments.h"

namespace afd::daemon {

class Seat {
  public:
    // The cores of one worker.
    struct CpuShare {
        uint64_t plan = 0;  // Of the host, which counts them from 1; 0: none yet.
        size_t index = 0;   // Among those that the plan has for the role.
    };

    struct Settings {
        control::Role role = control::ROLE_UNSPECIFIED;
        uint32_t index = 0;
        std::string executable;
        std::vector<std::string> arguments;
        // Puts what depends on this host into a Welcome of the leader, before each process.
        // Errors: what of it cannot be done here.
        std::function<Result<>(control::Welcome&)> localise;
        // For a localised Welcome. Errors: those of WorkerSegments::create().
        std::function<Result<schedule::WorkerSegments>(const control::Welcome&)> create_segments;
        // A segment that is not the seat's own: name and descriptor.
        std::function<schedule::WorkerSegments::Handles(const control::Welcome&)> shared_segments;
        // The process of this Welcome is ready.
        std::function<void(const control::Welcome&)> on_ready;
        // The process is gone, and no other is here yet. Another may follow at once.
        std::function<void()> on_gone;
    };

    // REQUIRES: `loop` outlives the seat. Errors: kResourceExhausted: descriptors.
    static Result<std::unique_ptr<Seat>> make(EventLoop& loop, Settings settings);

    // A stand-in asks for the worker over `link`.
    void take(std::unique_ptr<ClusterLink> link, control::Welcome welcome);
    // The process has come to the door. Errors: it has been here before.
    Result<> admit(ControlChannel& channel);

    int pid() const { return process_ == nullptr ? 0 : process_->pid(); }
    // There is a process, and no stand-in wants it any more.
    bool is_ending() const { return process_ != nullptr && link_ == nullptr; }
    // That of the process, or of the last one.
    const CpuShare& cpu_share() const { return cpu_share_; }
    // Of the next process. REQUIRES: there is none.
    void set_cpu_share(const CpuShare& share) { cpu_share_ = share; }
    // Of the last Welcome.
    uint64_t instance_id() const { return welcome_.instance_id(); }
    // Ends the process: asks, or, `at_once`, kills.
    void shut_down(bool at_once);

  private:
    Seat(EventLoop& loop, Settings settings);
    void begin();
    Result<> start();
    Result<> prepare_segments();
    void on_link(const Result<>& outcome);
    Result<> take_from_link();
    void pass_on(const control::SupervisorMessage& message);
    void on_worker(int events);
    Result<> take_from_worker();
    void flush_worker();
    void balance();
    void look();
    cluster::WorkerHostMessage sight(const schedule::HeartbeatView& view, bool has_counts) const;
    void on_gone(const ProcessEnd& end);
    void refuse(const Error& why);

    EventLoop& loop_;
    const Settings settings_;
    const std::string name_;
    CpuShare cpu_share_;
    UniqueFd doorbell_;
    std::optional<schedule::WorkerSegments> segments_;
    uint64_t instance_id_ = 0;  // That segments_ are of.
    control::Welcome welcome_;  // Of the process, or of the next one.
    std::unique_ptr<ClusterLink> link_;
    std::unique_ptr<WorkerProcess> process_;
    std::unique_ptr<ControlChannel> channel_;
    std::unique_ptr<FdWatcher> watcher_;
    FlushRetry flush_retry_;
    std::vector<control::SupervisorMessage> waiting_;  // Until the process is here.
    bool has_next_ = false;   // Someone asks, and the process of before is not gone.
    bool is_ending_ = false;  // The process was told to.
    // Nothing more is read from the process, or sent to it: its connection is over.
    bool is_cut_off_ = false;
    Timer look_timer_;
    schedule::HeartbeatView seen_;
    control::Stop stop_ = control::STOP_NONE;  // As the leader was told.
    uint64_t stop_seen_ms_ = 0;
    uint64_t said_ms_ = 0;
    uint64_t counted_ms_ = 0;
};

}  // namespace afd::daemon
