// SPDX-License-Identifier: Apache-2.0
#pragma once

// Deadlines: ends requests that take longer than they may, whether they wait or run. Their clients
// hear kDeadlineExceeded with what had become of them; the worker of a running one is told to stop,
// and its KV room is free when it has.
//
// The moment stands in the Flight (Admission sets it); a request that ends earlier is not taken out
// here. So the timer may find nothing due, and looks for the next moment: one look at all flights
// for each of them at most.

#include <cstdint>
#include <functional>

#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"
#include "daemon/loop/event_loop.h"

namespace afd::daemon {

class Deadlines {
  public:
    // `after_ends` is called when requests have been ended. All outlive the object.
    Deadlines(EventLoop& loop,
              FlightTable& flights,
              FlightEnds& ends,
              std::function<void()> after_ends);

    // The flight is to end at its deadline, if it has one. REQUIRES: it exists.
    void watch(FlightTable::Id id);

    // Of a request that wishes `wished_ms` where at most `limit_ms` are allowed; 0: none.
    static uint64_t timeout_ms(uint64_t wished_ms, uint64_t limit_ms);

  private:
    void on_timer();
    void wait_until(uint64_t deadline_us, uint64_t now_us);

    FlightTable& flights_;
    FlightEnds& ends_;
    const std::function<void()> after_ends_;
    Timer timer_;
    uint64_t next_us_ = 0;  // When the timer fires; 0: it does not.
};

}  // namespace afd::daemon
