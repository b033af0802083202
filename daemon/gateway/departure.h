// SPDX-License-Identifier: Apache-2.0
#pragma once

// Departure: this gateway ends, and another program (the heir) takes over what it has. What was
// accepted runs to its end here, with the bits of the workers that began it. A connection goes to
// the heir as soon as nothing runs for it, with the requests that it has sent meanwhile; a request
// that a Resume may ask for when it is over.
//
// Connections are given away in a turn of the loop of their own, because they close by that.

#include <functional>

#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/flight/resumable_requests.h"
#include "daemon/gateway/session/client_session.h"
#include "daemon/gateway/session/handed_connection.h"
#include "daemon/gateway/session/session_table.h"
#include "daemon/loop/event_loop.h"

namespace afd::daemon {

class Departure {
  public:
    using IsBusy = std::function<bool(const ClientSession&)>;

    // `is_busy`: something runs for it. `on_gone`: there is nothing left, called again and again.
    // All outlive the object.
    Departure(EventLoop& loop,
              FlightTable& flights,
              SessionTable& sessions,
              ResumableRequests& resumables,
              IsBusy is_busy,
              std::function<void()> on_gone);

    // REQUIRES: `heir` outlives the object, or end() comes before.
    void begin(Heir& heir);
    // The heir is gone: this gateway serves on.
    void end() { heir_ = nullptr; }
    bool is_on() const { return heir_ != nullptr; }

    // Something may have come to its end.
    void look();

  private:
    void give();

    FlightTable& flights_;
    SessionTable& sessions_;
    ResumableRequests& resumables_;
    const IsBusy is_busy_;
    const std::function<void()> on_gone_;
    NextTurn next_turn_;
    Heir* heir_ = nullptr;
};

}  // namespace afd::daemon
