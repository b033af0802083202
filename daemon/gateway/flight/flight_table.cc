// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/flight_table.h"

#include <algorithm>
#include <utility>

#include "daemon/gateway/session/kept_stream.h"

namespace afd::daemon {

bool Flight::has_connection() const {
    return client != nullptr && client != kept.get();
}

client::Finished Flight::summary(client::FinishReason reason, uint64_t now_us) const {
    const auto since_accepted = [this](uint64_t moment_us) {
        // 0: it never came so far.
        return moment_us == 0 ? 0 : moment_us - moments.accepted_us;
    };
    client::Finished finished;
    finished.set_reason(reason);
    request->describe_end(finished);
    finished.set_num_cached_tokens(num_cached_tokens);
    finished.set_queue_us(since_accepted(moments.started_us));
    finished.set_first_token_us(since_accepted(moments.first_token_us));
    finished.set_total_us(since_accepted(now_us));
    return finished;
}

FlightTable::Id FlightTable::add(Flight flight) {
    flights_.emplace(next_id_, std::move(flight));
    return next_id_++;
}

Flight* FlightTable::find(Id id) {
    const auto found = flights_.find(id);
    return found == flights_.end() ? nullptr : &found->second;
}

// Copies, in order of arrival: ending a flight erases it, and callers end many.
std::vector<FlightTable::Id> FlightTable::ids() const {
    std::vector<Id> ids;
    for (const auto& [id, flight] : flights_) ids.push_back(id);
    return ids;
}

std::vector<FlightTable::Id> FlightTable::ids_of(const ClientSession& client) const {
    std::vector<Id> ids;
    for (const auto& [id, flight] : flights_) {
        if (flight.client == &client) ids.push_back(id);
    }
    return ids;
}

size_t FlightTable::num_of(const ClientSession& client) const {
    return static_cast<size_t>(
        std::count_if(flights_.begin(), flights_.end(), [&](const auto& entry) {
            return entry.second.client == &client;
        }));
}

std::unordered_set<const ClientSession*> FlightTable::clients() const {
    std::unordered_set<const ClientSession*> clients;
    for (const auto& [id, flight] : flights_) clients.insert(flight.client);
    clients.erase(nullptr);
    return clients;
}

size_t FlightTable::num_detached_of(const std::string& account) const {
    return static_cast<size_t>(
        std::count_if(flights_.begin(), flights_.end(), [&](const auto& entry) {
            const Flight& flight = entry.second;
            return flight.client != nullptr && !flight.has_connection() &&
                   flight.client->identity().account == account;
        }));
}

std::optional<FlightTable::Id> FlightTable::find(const ClientSession& client,
                                                 uint64_t request_id) const {
    for (const auto& [id, flight] : flights_) {
        if (flight.client == &client && flight.request_id == request_id) return id;
    }
    return std::nullopt;
}

}  // namespace afd::daemon
