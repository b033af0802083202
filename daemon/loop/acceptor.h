// SPDX-License-Identifier: Apache-2.0
#pragma once

// Acceptor: takes the connections of a listening socket of any family. Whoever binds it decides
// what an address is and who may connect (socket_listener.h: Unix).

#include <functional>
#include <string>

#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "daemon/program/log_limit.h"

namespace afd::daemon {

class Acceptor {
  public:
    // Close-on-exec and non-blocking.
    using OnConnection = std::function<void(UniqueFd socket)>;

    // The most connections that one turn of the loop takes; whoever else connects waits for the
    // next one, behind what else is ready by then.
    static constexpr int kConnectionsPerTurn = 32;

    // `listening`: bound and listening, non-blocking. `name`: for the log. Out of descriptors, it
    // says so now and then, and tries again a little later.
    Acceptor(EventLoop& loop, UniqueFd listening, std::string name, OnConnection on_connection);

    int fd() const { return fd_.get(); }

    // Takes no connection until go_on(); they wait in the kernel, or for another that has the
    // socket.
    void pause();
    void go_on();

  private:
    void accept_some();
    void say_refused(int error);

    EventLoop& loop_;
    UniqueFd fd_;
    const std::string name_;
    LogLimit refusals_;
    OnConnection on_connection_;
    FdWatcher watcher_;
    Timer retry_;
};

}  // namespace afd::daemon
