// SPDX-License-Identifier: Apache-2.0
#pragma once

// HandoverWire: one end of the socket between an afdd and the one that takes its place, on the
// loop. Messages of handover.proto, and descriptors, which it owns until they have left.

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/control/flush_retry.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

// The version in an Offer; raise it with every incompatible change of handover.proto.
inline constexpr uint32_t kHandoverVersion = 2;

class HandoverWire {
  public:
    // Bytes of one Part: far from what a frame may have.
    static constexpr size_t kPartBytes = size_t{1} << 20;

    // `on_readable`: takes what has come from channel(); its error ends the wire. `on_end`: once,
    // with that error or why the other end is gone; it may destroy the wire.
    HandoverWire(EventLoop& loop,
                 ControlChannel& channel,
                 std::function<Result<>()> on_readable,
                 std::function<void(const Error&)> on_end);

    // Nothing is sent to an end that is gone.
    template <typename Message>
    void send(const Message& message, std::vector<UniqueFd> fds = {}) {
        channel_.queue(message, std::move(fds));
        flush();
    }

    // Nothing more comes. It holds already while `on_readable` takes what came last.
    bool is_at_end() const { return is_at_end_; }
    // Nothing waits for the other end to read, and it is there.
    bool has_sent_all() const { return ended_.ok() && !channel_.wants_write(); }

  private:
    void on_ready(int events);
    void read();
    void flush();
    void end(const Error& error);

    ControlChannel& channel_;
    const std::function<Result<>()> on_readable_;
    const std::function<void(const Error&)> on_end_;
    FdWatcher watcher_;
    FlushRetry flush_retry_;
    // A call of the owner's is never answered within it.
    NextTurn end_turn_;
    bool is_at_end_ = false;
    Result<> ended_;
};

}  // namespace afd::daemon
