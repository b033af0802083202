// SPDX-License-Identifier: Apache-2.0
#pragma once

// SocketFrontEnd: the door for programs of this user: client.proto over a Unix socket.

#include <memory>
#include <string>

#include "daemon/gateway/client_session.h"
#include "daemon/gateway/front_end.h"
#include "daemon/gateway/input_budget.h"
#include "daemon/loop/socket_listener.h"

namespace afd::daemon {

class SocketFrontEnd final : public FrontEnd {
  public:
    // `budget`: of all front ends. REQUIRES: `loop` and `host` outlive the object.
    // Errors: as SocketListener::listen().
    static Result<std::unique_ptr<FrontEnd>> open(EventLoop& loop,
                                                  const std::string& path,
                                                  SessionHost& host,
                                                  std::shared_ptr<InputBudget> budget);

    std::string address() const override { return "socket " + listener_->path(); }

  private:
    explicit SocketFrontEnd(std::unique_ptr<SocketListener> listener)
        : listener_(std::move(listener)) {}

    std::unique_ptr<SocketListener> listener_;
};

}  // namespace afd::daemon
