// SPDX-License-Identifier: Apache-2.0
#pragma once

// FlightTable: the requests in flight, by the gateway's own id and by their client.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/gateway/request.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class ClientConnection;

// A request in flight and to whom its answers go. Moments are of one steady clock.
struct Flight {
    std::unique_ptr<Request> request;
    ClientConnection* connection = nullptr;  // Null: the client is gone.
    uint64_t request_id = 0;                 // The client's.
    uint64_t accepted_us = 0;
    uint64_t started_us = 0;      // 0: not yet.
    uint64_t first_token_us = 0;  // 0: not yet.
    bool cancelled = false;
    bool failed = false;  // Its client has heard an error; it ends silently.

    // What a client hears at the end.
    client::Finished summary(client::FinishReason reason, uint64_t now_us) const;
};

class FlightTable {
  public:
    using Id = uint64_t;  // Never used twice; ascending in the order of arrival.

    // The id that the next add() gives.
    Id next_id() const { return next_id_; }
    void add(Flight flight);
    void erase(Id id) { flights_.erase(id); }

    bool empty() const { return flights_.empty(); }
    size_t size() const { return flights_.size(); }
    // REQUIRES: the flight exists.
    Flight& at(Id id) { return flights_.at(id); }

    // All, ascending.
    std::vector<Id> ids() const;
    // Those of a client, ascending.
    std::vector<Id> ids_of(const ClientConnection& connection) const;
    std::optional<Id> find(const ClientConnection& connection, uint64_t request_id) const;

  private:
    Id next_id_ = 1;
    std::map<Id, Flight> flights_;
};

}  // namespace afd::daemon
