// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpDoor: requests over HTTP/1.1, each with a connection to itself while it is answered; an idle
// connection is used again. All connections are in one epoll set, which the run's loop polls.

#include <memory>
#include <unordered_map>
#include <vector>

#include "clients/load/door.h"
#include "clients/load/http_link.h"
#include "clients/load/http_target.h"

namespace afd::client {

class HttpDoor final : public Door {
  public:
    // Errors: kResourceExhausted: no descriptor is left.
    static Result<std::unique_ptr<HttpDoor>> create(HttpTarget target);
    ~HttpDoor() override;
    HttpDoor(const HttpDoor&) = delete;
    HttpDoor& operator=(const HttpDoor&) = delete;

    std::optional<Failure> send(uint64_t request_id,
                                const Workload& workload,
                                const PlannedRequest& planned) override;
    // Closes the connection, which tells the server.
    void give_up(uint64_t request_id) override;
    pollfd watched() const override { return {epoll_, POLLIN, 0}; }
    bool has_heard() const override { return !heard_.empty(); }
    Result<> receive(std::vector<DoorEvent>& events) override;

  private:
    HttpDoor(int epoll, HttpTarget target) : epoll_(epoll), target_(std::move(target)) {}

    struct Slot {
        HttpLink link;
        bool watches_writes = true;
    };

    std::optional<Failure> start(uint64_t request_id, std::string request);
    Result<Slot*> open_slot();
    void drive(Slot& slot, std::vector<DoorEvent>& events);
    // Closes its connection.
    void remove(Slot& slot);
    void watch(const Slot& slot, int operation);

    const int epoll_;
    const HttpTarget target_;
    std::unordered_map<int, std::unique_ptr<Slot>> slots_;  // By socket.
    std::unordered_map<uint64_t, Slot*> by_request_;
    std::vector<Slot*> idle_;       // The last one was used last.
    std::vector<DoorEvent> heard_;  // While sending.
};

}  // namespace afd::client
