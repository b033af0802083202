// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventNumbers: numbers the events of a stream, from 1, as server-sent events have ids, and leaves
// out those that a client has already. The same answer gives the same events, so the number of one
// is the same whenever it is said. Comments have none, and pass.

#include <cstdint>
#include <string>
#include <string_view>

namespace afd::daemon {

class EventNumbers {
  public:
    explicit EventNumbers(uint64_t num_received) : num_received_(num_received) {}

    // REQUIRES: whole events, each with its empty line.
    std::string take(std::string_view events);

    // Whether the client has events that there are not yet.
    bool is_behind_client() const { return num_made_ < num_received_; }

  private:
    const uint64_t num_received_;
    uint64_t num_made_ = 0;
};

}  // namespace afd::daemon
