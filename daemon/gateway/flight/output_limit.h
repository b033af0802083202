// SPDX-License-Identifier: Apache-2.0
#pragma once

// OutputLimit: how much a client may leave unread. A slow reader harms itself only: beyond the
// limit its requests end with kResourceExhausted, and one that asks on without reading any answer
// is cut off when as much again waits: behind the limit, or behind what waited when it was told.

#include <cstddef>
#include <unordered_map>

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
    // The client is gone.
    void forget(const ClientSession& client) { told_.erase(&client); }

  private:
    const size_t bytes_max_;
    const FlightTable& flights_;
    FlightEnds& ends_;
    // Connections whose requests ended here and that are still beyond the limit, with what was
    // queued for each when it was told the first time.
    std::unordered_map<const ClientSession*, size_t> told_;
};

}  // namespace afd::daemon
