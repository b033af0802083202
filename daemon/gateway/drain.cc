// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/drain.h"

#include <algorithm>
#include <string>
#include <utility>

namespace afd::daemon {

void Drain::begin(ClientSession& client, uint64_t request_id) {
    is_on_ = true;
    waiting_.push_back({&client, request_id});
}

void Drain::begin() {
    is_on_ = true;
    // The program waits apart from clients: it hears of the end after their Done has been written.
    program_waits_ = true;
}

Result<> Drain::check_admits() const {
    if (!is_on_) return {};
    return Error{Code::kFailedPrecondition,
                 "afdd is draining and takes no new requests; send this one elsewhere or later"};
}

bool Drain::is_awaited_by(const ClientSession& client) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& entry) {
        return entry.client == &client;
    });
}

void Drain::forget(const ClientSession& client) {
    std::erase_if(waiting_, [&](const Waiting& entry) { return entry.client == &client; });
}

void Drain::cut_off(size_t num_requests) {
    const std::string what =
        num_requests == 0 ? "answers that nobody had read were dropped"
        : num_requests == 1
            ? "1 request had not finished, and was cut off"
            : std::to_string(num_requests) + " requests had not finished, and were cut off";
    // Not kDeadlineExceeded: that is what a client calls the end of its own patience.
    const Error error{Code::kUnavailable, what};
    for (const Waiting& entry : std::exchange(waiting_, {})) {
        answers_.error(*entry.client, entry.request_id, error);
    }
}

bool Drain::end() {
    // Flushed here: what the program does next may end it.
    for (const Waiting& entry : std::exchange(waiting_, {})) {
        answers_.done(*entry.client, entry.request_id);
        entry.client->flush();
    }
    return std::exchange(program_waits_, false);
}

}  // namespace afd::daemon
