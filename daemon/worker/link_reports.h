// SPDX-License-Identifier: Apache-2.0
#pragma once

// LinkReports: while it lives, afdd hears once a second what the session's transport has measured
// of its ways to the FFN workers.

#include "daemon/control/worker_control.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class LinkReports {
  public:
    // Both outlive it. Nothing is told of a transport that has no links, or of none (null).
    LinkReports(WorkerControl& control, const schedule::DispatchTransport* transport);
    ~LinkReports();
    LinkReports(const LinkReports&) = delete;
    LinkReports& operator=(const LinkReports&) = delete;

  private:
    WorkerControl& control_;
};

}  // namespace afd::daemon
