// SPDX-License-Identifier: Apache-2.0
#pragma once

// StandIn: on the leader, a worker of another host. It is a process that afdd starts, hears and
// kills as it does a worker of its own, and it passes on what the two say to each other; what is
// seen of the worker, its heartbeat and what it counts, it stores where afdd looks.
//
// The worker lives as long as the stand-in and the connection do: the end of any of the three is
// that of the others, so that whoever has the place of a worker is the only one that has it. A host
// that cannot be reached may run the old worker a little longer: its epoch is no longer that of the
// place (R13).

#include <memory>
#include <string>

#include "daemon/cluster/cluster_link.h"
#include "daemon/control/control_channel.h"
#include "daemon/control/flush_retry.h"
#include "daemon/loop/event_loop.h"
#include "proto/cluster.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/shared_memory/segment.h"

namespace afd::daemon {

class StandIn {
  public:
    struct Options {
        control::Role role = control::ROLE_UNSPECIFIED;
        uint32_t index = 0;
        std::string control_socket;     // Of the leader's afdd.
        std::string cluster_directory;  // Certificates (cluster_identity.h).
    };

    // Takes the place at afdd, and asks the host that the Welcome names for the worker.
    // Errors: those of say_hello() and of the certificates; afdd has heard of the latter.
    static Result<std::unique_ptr<StandIn>> open(EventLoop& loop, const Options& options);

    // Until the worker, its host or afdd ends; returns the exit status.
    int run();

  private:
    StandIn(EventLoop& loop, const Options& options, ControlChannel afdd, control::Welcome welcome);
    Result<> map_segments();
    Result<> reach_host(const std::string& cluster_directory);
    Result<> ask_for_worker();
    void on_afdd(int events);
    Result<> take_from_afdd();
    void on_host(const Result<>& outcome);
    Result<> take_from_host();
    Result<> take(const cluster::WorkerHostMessage& message);
    Result<> store(const cluster::Sight& sight);
    void flush_afdd();
    void balance();
    void beat();
    // Unless the worker has said it.
    void tell_afdd(const Error& why);
    // Tells afdd, and leaves. REQUIRES, as of leave(): open() is over.
    void fail(const Error& error);
    void leave(int exit_status);

    EventLoop& loop_;
    const control::Role role_;
    const uint32_t index_;
    ControlChannel afdd_;
    const control::Welcome welcome_;
    std::string host_name_;
    schedule::Segment control_;  // Of the worker, as afdd sees it.
    schedule::Segment metrics_;
    FdWatcher afdd_watcher_;
    FlushRetry flush_retry_;
    std::unique_ptr<ClusterLink> host_;
    Timer beat_timer_;
    control::Stop stop_ = control::STOP_NONE;  // Of the worker, as afdd was told.
    bool has_asked_ = false;                   // The host; until then nothing of afdd is taken.
    bool is_to_end_ = false;                   // afdd has asked for it.
    bool has_said_why_ = false;
    bool has_crashed_ = false;  // The worker.
    bool is_over_ = false;
    int exit_status_ = 0;
};

}  // namespace afd::daemon
