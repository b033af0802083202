// SPDX-License-Identifier: Apache-2.0
#pragma once

// Guests: the connections of a joined host that have not said which worker they ask for. Anybody
// can make one; there are at most as many as HostList has. Only the leader's stand-ins get a seat;
// one that is refused hears why. Who has shown no certificate makes room for the next, and who is
// silent leaves.

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_link.h"
#include "daemon/cluster/refusal_log.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/cluster.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Guests {
  public:
    // A stand-in of the leader asks for a worker. Takes the link, and what it wants of `wanted`.
    // Errors: why there is none; the link was not taken.
    using Seating =
        std::function<Result<>(std::unique_ptr<ClusterLink>& link, cluster::Take& wanted)>;

    // REQUIRES: `loop` and `identity` outlive the object.
    Guests(EventLoop& loop, const ClusterIdentity& identity, Seating seat);
    ~Guests();

    // Somebody has connected.
    void add(UniqueFd socket);

  private:
    struct Guest;

    bool make_room();
    void on_guest(Guest& guest, const Result<>& outcome);
    Result<> serve(Guest& guest);
    void refuse(Guest& guest, const Error& why);

    EventLoop& loop_;
    const ClusterIdentity& identity_;
    const Seating seat_;
    std::list<Guest> guests_;
    RefusalLog refusals_;
};

}  // namespace afd::daemon
