// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight_table.h"

#include <algorithm>
#include <utility>

namespace afd::daemon {

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

std::optional<FlightTable::Id> FlightTable::find(const ClientSession& client,
                                                 uint64_t request_id) const {
    for (const auto& [id, flight] : flights_) {
        if (flight.client == &client && flight.request_id == request_id) return id;
    }
    return std::nullopt;
}

}  // namespace afd::daemon
