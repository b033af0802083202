// SPDX-License-Identifier: Apache-2.0
#pragma once

// LeaderTie: what ties a joined host to its leader: the connection over which it joins and says
// that it lives (cluster.proto). A tie that breaks is made again, for as long as it is not stopped,
// each time with the certificates that are there then.
//
//   connecting --> says Join --> joined
//       ^---- it breaks, 1 s -------'
//
// Where a certificate is refused, which somebody has to mend, the pause grows to 30 s.

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_link.h"
#include "daemon/config/config.h"
#include "daemon/loop/event_loop.h"
#include "daemon/tcp/tcp_connector.h"
#include "proto/cluster.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// What the host says to its leader, and hears. on_leader_over() and on_leader_lost() may stop the
// tie; nothing may destroy it.
class LeaderListener {
  public:
    virtual ~LeaderListener() = default;
    // To join over `leader`. Errors: kUnavailable: another attempt may succeed; else none does.
    virtual Result<cluster::Join> join_over(const ClusterLink& leader) = 0;
    // The leader has said yes. Errors: as above.
    virtual Result<> on_joined(const ClusterLink& leader, const cluster::Joined& joined) = 0;
    // The leader has ended in order, and leave_with_leader is on.
    virtual void on_leader_over() = 0;
    // The connection has ended, or could not be made. It is made again unless the tie is stopped.
    virtual void on_leader_lost() = 0;
    // Why there is no leader yet, when that is news.
    virtual void on_leader_missing(const std::string& why) = 0;
    // What no further attempt mends; the tie makes none.
    virtual void on_leader_refuses(const Error& why) = 0;
};

class LeaderTie {
  public:
    // REQUIRES: everything outlives the tie.
    // Errors: those of parse_join_address(): config.join.
    static Result<std::unique_ptr<LeaderTie>> make(EventLoop& loop,
                                                   const Config& config,
                                                   ClusterIdentity& identity,
                                                   LeaderListener& listener);

    void start() { connector_.start(); }
    // The leader hears that this host ends in order; the connection ends, and no other is made.
    void stop();
    // Something may have been mended: the next attempt is made now.
    void hurry();

    bool is_connected() const { return leader_ != nullptr; }
    // The leader has said yes.
    bool is_joined() const { return leader_ != nullptr && has_joined_; }
    // "leader at HOST:PORT".
    const std::string& leader_name() const { return leader_name_; }

  private:
    LeaderTie(EventLoop& loop,
              const Config& config,
              JoinAddress address,
              ClusterIdentity& identity,
              LeaderListener& listener);
    void on_connecting(Result<UniqueFd> socket);
    void renew_identity();
    Result<> greet(UniqueFd socket);
    void on_leader(const Result<>& outcome);
    Result<> take_from_leader();
    Result<> say_join();
    void beat();
    void try_again(const Error& why);

    EventLoop& loop_;
    const Config& config_;
    ClusterIdentity& identity_;
    LeaderListener& listener_;
    const std::string leader_name_;
    TcpConnector connector_;
    std::unique_ptr<ClusterLink> leader_;
    bool has_said_join_ = false;
    bool has_joined_ = false;
    bool is_stopped_ = false;
    std::string last_failure_;
    std::string last_renewal_failure_;
    uint64_t failure_said_ms_ = 0;
    uint64_t pause_ms_ = 0;  // Before the last attempt.
    Timer retry_timer_;
    Timer beat_timer_;
};

}  // namespace afd::daemon
