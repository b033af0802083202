// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClientAnswers: what afdd says to its clients. Each call queues one Response on its session;
// flush() writes what was queued, so that an entry of the gateway costs a session one write.

#include <cstdint>
#include <vector>

#include "daemon/gateway/flight/flight_table.h"
#include "daemon/gateway/session/client_session.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class ClientAnswers {
  public:
    // Nothing to a session that is closed.
    void send(ClientSession& client, const client::Response& response);
    // Not to a client that has cancelled. None of these to one that is gone, unless it may resume:
    // then it is kept.
    void chunk(const Flight& flight, client::Chunk chunk);
    void finished(const Flight& flight, client::Finished finished);
    void error(const Flight& flight, const Error& error);
    void error(ClientSession& client, uint64_t request_id, const Error& error);
    void done(ClientSession& client, uint64_t request_id);

    // Writes what was queued since the last call; the sessions that had something.
    std::vector<ClientSession*> flush();

    // The session is closed.
    void forget(const ClientSession& client);

  private:
    void tell(const Flight& flight, client::Response response);

    std::vector<ClientSession*> waiting_;  // Each once.
};

}  // namespace afd::daemon
