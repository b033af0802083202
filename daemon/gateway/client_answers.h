// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClientAnswers: what afdd says to its clients. Each call queues one Response on its connection;
// flush() writes what was queued, so that an entry of the gateway costs a connection one write.

#include <cstdint>
#include <vector>

#include "daemon/gateway/client_connection.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class ClientAnswers {
  public:
    void send(ClientConnection& connection, const client::Response& response);
    void chunk(ClientConnection& connection, uint64_t request_id, client::Chunk chunk);
    void error(ClientConnection& connection, uint64_t request_id, const Error& error);
    void done(ClientConnection& connection, uint64_t request_id);

    // Writes what was queued since the last call; the connections that had something.
    std::vector<ClientConnection*> flush();

    // A connection that is closed gets nothing more.
    void forget(const ClientConnection& connection);

  private:
    std::vector<ClientConnection*> waiting_;  // Each once.
};

}  // namespace afd::daemon
