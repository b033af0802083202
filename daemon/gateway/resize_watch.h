// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResizeWatch: the client that has asked for the resize that is under way: it hears what is being
// done, and at the end what came of it. If it goes away, nobody hears. The resize itself is the
// host's (gateway_host.h).

#include <cstdint>

#include "daemon/gateway/client_answers.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class ResizeWatch {
  public:
    // `answers` outlives the object.
    explicit ResizeWatch(ClientAnswers& answers) : answers_(answers) {}

    // REQUIRES: no other is under way.
    void begin(ClientSession& client, uint64_t request_id);
    void tell(const client::ResizeProgress& progress);
    void end(const Result<client::Resized>& outcome);

    bool is_for(const ClientSession& client) const { return client_ == &client; }
    // The client is gone.
    void forget(const ClientSession& client);

  private:
    ClientAnswers& answers_;
    ClientSession* client_ = nullptr;  // Null: nobody listens.
    uint64_t request_id_ = 0;
};

}  // namespace afd::daemon
