// SPDX-License-Identifier: Apache-2.0
#pragma once

// SocketFrontEnd: the door for programs of this user: client.proto over a Unix socket.

#include <memory>
#include <string>
#include <string_view>

#include "daemon/gateway/session/client_session.h"
#include "daemon/gateway/session/front_end.h"
#include "daemon/gateway/session/input_budget.h"
#include "daemon/loop/socket_listener.h"

namespace afd::daemon {

class ClientConnection;

class SocketFrontEnd final : public FrontEnd {
  public:
    // `budget`: of all front ends. `listening`: of another afdd that served this path; none: it is
    // bound. REQUIRES: `loop` and `owner` outlive the object.
    // Errors: as SocketListener::listen().
    static Result<std::unique_ptr<FrontEnd>> open(EventLoop& loop,
                                                  const std::string& path,
                                                  SessionOwner& owner,
                                                  std::shared_ptr<InputBudget> budget,
                                                  UniqueFd listening = {});
    // FrontEnd::address() of that path.
    static std::string address_of(const std::string& path) { return "socket " + path; }

    std::string_view kind() const override { return kSocketDoor; }
    std::string address() const override { return address_of(listener_->path()); }
    int listening_socket() const override { return listener_->acceptor().fd(); }
    void pause() override { listener_->acceptor().pause(); }
    void go_on() override;
    void leave() override { listener_->leave_file(); }
    void adopt(HandedConnection connection) override;

  private:
    SocketFrontEnd(EventLoop& loop, SessionOwner& owner, std::shared_ptr<InputBudget> budget);
    std::unique_ptr<ClientConnection> session_of(UniqueFd socket, const PeerCredentials& peer);

    EventLoop& loop_;
    SessionOwner& owner_;
    const std::shared_ptr<InputBudget> budget_;
    std::unique_ptr<SocketListener> listener_;
};

}  // namespace afd::daemon
