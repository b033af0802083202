// SPDX-License-Identifier: Apache-2.0
#pragma once

// SessionTable: owns the clients' sessions. A closed one is destroyed in a later turn of the loop,
// because it closes within its own calls.

#include <functional>
#include <memory>
#include <vector>

#include "daemon/gateway/client_session.h"
#include "daemon/loop/event_loop.h"

namespace afd::daemon {

class SessionTable {
  public:
    // `after_burial` is called when closed sessions have been destroyed.
    SessionTable(EventLoop& loop, std::function<void()> after_burial);

    void add(std::unique_ptr<ClientSession> session);
    // REQUIRES: it was added, is closed, and is not buried yet.
    void bury(ClientSession& session);

    // Whether an open session has answers that its client has not taken.
    bool has_unsent() const;

  private:
    std::vector<std::unique_ptr<ClientSession>> open_;
    std::vector<std::unique_ptr<ClientSession>> closed_;
    Timer burial_;
};

}  // namespace afd::daemon
