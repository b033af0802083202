// SPDX-License-Identifier: Apache-2.0
#pragma once

// SessionTable: owns the clients' sessions, and knows since when each is idle. A closed one is
// destroyed in a later turn of the loop, because it closes within its own calls.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/gateway/session/client_session.h"
#include "daemon/loop/event_loop.h"

namespace afd::daemon {

class SessionTable {
  public:
    // `after_burial` is called when closed sessions have been destroyed.
    SessionTable(EventLoop& loop, std::function<void()> after_burial);

    void add(std::unique_ptr<ClientSession> session);
    // REQUIRES: it was added, is closed, and is not buried yet.
    void bury(ClientSession& session);

    size_t num_open() const { return open_.size(); }
    std::vector<ClientSession*> all() const;
    // The client has said something or taken some of an answer, or a request of it has ended.
    // REQUIRES: it is open.
    void touch(const ClientSession& session);
    // How long a session may be idle before it gives way to another.
    struct Patience {
        uint64_t idle_ms = 0;
        uint64_t silent_ms = 0;  // Of one that was never touched.
    };
    // Of the sessions whose time is over, and for which `is_busy` does not hold: one that was never
    // touched, if there is one, and of these or else of the others the one that has been idle for
    // the longest. Null: there is none.
    ClientSession* longest_idle(const Patience& patience,
                                const std::function<bool(const ClientSession&)>& is_busy) const;

    // Whether an open session has answers that its client has not taken, or reads a request that it
    // will answer.
    bool owes_answers() const;

  private:
    struct Open {
        std::unique_ptr<ClientSession> session;
        uint64_t active_ms = 0;
        bool is_silent = true;  // It was never touched.
    };

    const EventLoop& loop_;
    std::vector<Open> open_;
    std::vector<std::unique_ptr<ClientSession>> closed_;
    Timer burial_;
};

}  // namespace afd::daemon
