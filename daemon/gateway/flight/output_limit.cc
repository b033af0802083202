// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/output_limit.h"

#include "daemon/program/logging.h"

namespace afd::daemon {

bool OutputLimit::enforce(ClientSession& client) {
    const size_t queued_bytes = client.queued_bytes();
    if (queued_bytes <= bytes_max_) {
        forget(client);
        return false;
    }
    const std::vector<FlightTable::Id> ids = flights_.ids_of(client);
    // One answer may be longer than the limit; its client is to read what is said behind it.
    if (!ids.empty() && flights_.at(ids.front()).has_connection()) {
        told_.try_emplace(&client, queued_bytes);
    }
    const auto told = told_.find(&client);
    const size_t bytes_until_now = told == told_.end() ? bytes_max_ : told->second;
    for (const FlightTable::Id id : ids) {
        // The requests end, the connection stays: a client that reads again learns why.
        ends_.disown(id,
                     {Code::kResourceExhausted,
                      fmt::format("the client reads too slowly: {} bytes of answers wait, at most "
                                  "{} are kept (output_buffer_kib)",
                                  queued_bytes,
                                  bytes_max_)});
    }
    if (!ids.empty()) {
        log::warn("{} reads too slowly: its {} requests end", client.identity().name, ids.size());
        // Without a request in flight there is nothing to end. As much again as the limit, because
        // the errors above are bytes of this queue too.
    } else if (queued_bytes > bytes_until_now + bytes_max_) {
        log::warn("{} asks and does not read: closed", client.identity().name);
        client.close();
    }
    return !ids.empty();
}

}  // namespace afd::daemon
