// SPDX-License-Identifier: Apache-2.0
#pragma once

// Drain: no new requests, and word to everyone who asked once nothing is in flight. It cannot be
// taken back.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/gateway/flight/client_answers.h"
#include "proto/status.h"

namespace afd::daemon {

class Drain {
  public:
    // `answers` outlives the object.
    explicit Drain(ClientAnswers& answers) : answers_(answers) {}

    // Begins, or goes on: the client hears at the end.
    void begin(ClientSession& client, uint64_t request_id);
    // Begins, or goes on: end() tells.
    void begin();
    bool is_on() const { return is_on_; }

    // Errors while it is on: kFailedPrecondition, for whoever asks for something new.
    Result<> check_admits() const;

    bool is_awaited_by(const ClientSession& client) const;
    // The client is gone, and hears nothing.
    void forget(const ClientSession& client);

    // The program ends with `num_requests` in flight, or with answers that nobody has read: whoever
    // waits hears that as an error.
    void cut_off(size_t num_requests);
    // Nothing is in flight, no request and no unsent answer. Returns whether a begin() without a
    // client is to hear of it; each does once.
    bool end();

  private:
    struct Waiting {
        ClientSession* client = nullptr;
        uint64_t request_id = 0;
    };

    ClientAnswers& answers_;
    std::vector<Waiting> waiting_;
    bool is_on_ = false;
    bool program_waits_ = false;
};

}  // namespace afd::daemon
