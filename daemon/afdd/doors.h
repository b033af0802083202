// SPDX-License-Identifier: Apache-2.0
#pragma once

// Doors: the front ends of an instance, and what they share: where clients come in. An afdd that
// takes the place of another goes on with the listening sockets of that one where it has the same
// addresses.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/listen_address.h"
#include "daemon/gateway/gateway.h"
#include "daemon/gateway/request/text_thread.h"
#include "daemon/gateway/session/front_end.h"
#include "daemon/gateway/session/handed_connection.h"
#include "daemon/gateway/session/input_budget.h"
#include "daemon/handover/predecessor.h"
#include "daemon/http/http_services.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/handover.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Doors {
  public:
    // REQUIRES: all of these outlive the object, but for `predecessor`: null if there is none.
    struct Surroundings {
        EventLoop* loop = nullptr;
        const Config* config = nullptr;
        InstanceSetup* setup = nullptr;
        TextThread* texts = nullptr;
        Gateway* gateway = nullptr;
        Predecessor* predecessor = nullptr;
    };

    // Opens all that the configuration names.
    // Errors: kAlreadyExists: an address is in use. Else those of front ends and API keys.
    static Result<std::unique_ptr<Doors>> open(const Surroundings& surroundings);
    // Whether they could be opened while that afdd still has its own.
    // Errors: kFailedPrecondition: HTTP at its port, but at another address. kAlreadyExists and
    // others: as open().
    static Result<> check_beside(const Predecessor& predecessor, const Config& config);

    // Where clients find the instance, for the log.
    std::string addresses() const;
    // Null: no HTTP.
    HttpServices* http() const { return http_.get(); }

    // Adds each to an offer, and its socket, which stays the door's.
    void offer(handover::Offer& offer, std::vector<int>& fds) const;
    // The kinds of the doors that go on with the listening socket of the afdd before this one.
    std::vector<std::string_view> kept_kinds() const;
    // Nobody is let in until go_on(); whoever connects meanwhile waits.
    void pause();
    // Also listens again where leave() has ended that; the log says where that cannot be.
    void go_on();
    // Those of `kept` are another afdd's from now on, and paused; nobody listens at the others.
    void leave(const std::vector<std::string_view>& kept);
    // A connection from another afdd. One of a door that does not exist is closed.
    void adopt(HandedConnection connection);

  private:
    // With the listening socket of another afdd, or, given none, one of its own.
    using Open = std::function<Result<std::unique_ptr<FrontEnd>>(UniqueFd listening)>;
    struct Door {
        Open open;
        bool is_kept = false;
        std::unique_ptr<FrontEnd> front_end;  // Null: nobody listens there.
    };

    Doors() = default;
    Result<> add(Open open, UniqueFd listening);
    Result<> open_socket(const Surroundings& surroundings, std::shared_ptr<InputBudget> budget);
    Result<> open_http(const Surroundings& surroundings, std::shared_ptr<InputBudget> budget);

    std::vector<Door> doors_;
    std::shared_ptr<HttpServices> http_;
};

}  // namespace afd::daemon
