// SPDX-License-Identifier: Apache-2.0
#pragma once

// OutputLimit: how much a client may leave unread. A slow reader harms itself only: beyond the
// limit its requests end with kResourceExhausted, and one that asks on without reading any answer
// is cut off at twice the limit.

#include <cstddef>

#include "daemon/gateway/flight/flight_ends.h"
#include "daemon/gateway/flight/flight_table.h"

namespace afd::daemon {

class OutputLimit {
  public:
    // All outlive the object.
    OutputLimit(size_t bytes_max, const FlightTable& flights, FlightEnds& ends)
        : bytes_max_(bytes_max), flights_(flights), ends_(ends) {}

    // REQUIRES: the session was flushed. Returns whether requests were ended.
    bool enforce(ClientSession& client);

  private:
    const size_t bytes_max_;
    const FlightTable& flights_;
    FlightEnds& ends_;
};

}  // namespace afd::daemon
