// SPDX-License-Identifier: Apache-2.0
#pragma once

// SocketDoor: requests over one connection to afdd's socket (proto/client.proto).

#include <unordered_map>
#include <vector>

#include "clients/connection.h"
#include "clients/generate_progress.h"
#include "clients/load/door.h"

namespace afd::client {

class SocketDoor final : public Door {
  public:
    explicit SocketDoor(Connection connection) : connection_(std::move(connection)) {}

    std::optional<Failure> send(uint64_t request_id,
                                const Workload& workload,
                                const PlannedRequest& planned) override;
    void give_up(uint64_t request_id) override;
    pollfd watched() const override { return {connection_.fd(), connection_.events(), 0}; }
    bool has_heard() const override { return false; }
    Result<> receive(std::vector<DoorEvent>& events) override;

  private:
    Result<> take(const Response& response, std::vector<DoorEvent>& events);

    Connection connection_;
    std::unordered_map<uint64_t, GenerateProgress> in_flight_;
    uint64_t last_request_id_ = 0;
    uint64_t next_cancel_id_ = uint64_t{1} << 63;  // Beyond those of requests.
    std::vector<Response> responses_;
};

}  // namespace afd::client
