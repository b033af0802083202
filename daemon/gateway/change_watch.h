// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChangeWatch: the client that has asked for the change of the instance that is under way, a resize
// or an upgrade: it hears what is being done, and at the end what came of it. If it goes away,
// nobody hears. The change itself is the program's (served_instance.h).

#include <cstdint>
#include <string>

#include "daemon/gateway/flight/client_answers.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class ChangeWatch {
  public:
    // `answers` outlives the object.
    explicit ChangeWatch(ClientAnswers& answers) : answers_(answers) {}

    // REQUIRES: no other is under way.
    void begin(ClientSession& client, uint64_t request_id);
    // One line.
    void tell(const std::string& text);
    // `outcome`: all of the answer but its request_id.
    void end(const Result<client::Response>& outcome);

    bool is_for(const ClientSession& client) const { return client_ == &client; }
    // The client is gone.
    void forget(const ClientSession& client);

  private:
    ClientAnswers& answers_;
    ClientSession* client_ = nullptr;  // Null: nobody listens.
    uint64_t request_id_ = 0;
};

}  // namespace afd::daemon
