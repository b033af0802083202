// SPDX-License-Identifier: Apache-2.0
#pragma once

// CertificateWatch: says in the log, once a day from 30 days before, that the certificate of this
// host is about to expire. A new one in its place is taken then at the latest.

#include "daemon/cluster/cluster_identity.h"
#include "daemon/loop/event_loop.h"

namespace afd::daemon {

class CertificateWatch {
  public:
    // REQUIRES: both outlive it.
    CertificateWatch(EventLoop& loop, ClusterIdentity& identity);

  private:
    void look();

    ClusterIdentity& identity_;
    Timer timer_;
};

}  // namespace afd::daemon
