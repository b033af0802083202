// SPDX-License-Identifier: Apache-2.0
#pragma once

// TcpConnector: begins connections to a JoinAddress. What a name means is asked for each time, on a
// thread of its own, since whoever knows may take seconds; of several addresses each has its turn.

#include <functional>
#include <memory>

#include "daemon/config/join_address.h"
#include "daemon/loop/background_thread.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

class TcpConnector {
  public:
    // A socket that connects, non-blocking; whether it does shows at its first use.
    // Errors: those of addresses_of() and connect_tcp().
    using OnBegun = std::function<void(Result<UniqueFd> socket)>;

    // REQUIRES: `loop` outlives it.
    TcpConnector(EventLoop& loop, JoinAddress address, OnBegun on_begun);

    // Calls back once: for numbers within this call. A name that is still asked for is given up; so
    // is it at the end, which does not wait for a name server that does not answer.
    void start();
    // Nothing is called any more.
    void stop() { lookup_.reset(); }

  private:
    const JoinAddress address_;
    const OnBegun on_begun_;
    BackgroundThread resolver_;
    std::unique_ptr<BackgroundThread::Job> lookup_;
    size_t num_lookups_ = 0;
};

}  // namespace afd::daemon
