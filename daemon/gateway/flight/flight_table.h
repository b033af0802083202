// SPDX-License-Identifier: Apache-2.0
#pragma once

// FlightTable: the requests in flight, by the gateway's own id and by their client.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "daemon/gateway/request/request.h"
#include "daemon/metrics/request_metrics.h"
#include "proto/client.pb.h"

namespace afd::daemon {

class ClientSession;
class KeptStream;

// Attention workers that ended by their own fault while they had a request, since its last token
// (suspects.h).
struct WorkerDeaths {
    uint32_t num = 0;
    uint32_t session = 0;      // Of the first.
    bool was_another = false;  // One was of another session.

    void add(uint32_t of_session) {
        if (num++ == 0) session = of_session;
        was_another = was_another || of_session != session;
    }
};

// A request in flight and to whom its answers go.
struct Flight {
    std::unique_ptr<Request> request;
    ClientSession* client = nullptr;   // Null: nobody listens any more.
    std::shared_ptr<KeptStream> kept;  // Of a resumable one; its client while no connection has it.
    uint64_t request_id = 0;           // The client's.
    RequestMoments moments;
    uint64_t deadline_us = 0;        // As the moments; 0: it has none.
    uint32_t num_cached_tokens = 0;  // Of the prompt, as its first worker said.
    WorkerDeaths deaths;
    bool is_cancelled = false;  // Its worker, if it has one, was told to stop.
    bool is_disowned = false;   // Its client has heard an error; it ends silently.

    // Whether its client is a connection.
    bool has_connection() const;
    // What a client hears at the end.
    client::Finished summary(client::FinishReason reason, uint64_t now_us) const;
};

class FlightTable {
  public:
    using Id = uint64_t;  // Never used twice; ascending in the order of arrival.

    // The id that the next add() gives.
    Id next_id() const { return next_id_; }
    // Returns its id.
    Id add(Flight flight);
    void erase(Id id) { flights_.erase(id); }

    bool empty() const { return flights_.empty(); }
    size_t size() const { return flights_.size(); }
    // REQUIRES: the flight exists.
    Flight& at(Id id) { return flights_.at(id); }
    const Flight& at(Id id) const { return flights_.at(id); }
    // Null: it has ended.
    Flight* find(Id id);

    // All, ascending.
    std::vector<Id> ids() const;
    // Those of a client, ascending.
    std::vector<Id> ids_of(const ClientSession& client) const;
    size_t num_of(const ClientSession& client) const;
    // All clients.
    std::unordered_set<const ClientSession*> clients() const;
    // Those of an account that no connection has.
    size_t num_detached_of(const std::string& account) const;
    std::optional<Id> find(const ClientSession& client, uint64_t request_id) const;

  private:
    Id next_id_ = 1;
    std::map<Id, Flight> flights_;
};

}  // namespace afd::daemon
