// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterLink: a ClusterChannel on an event loop. It reads, sends, and gives up a peer that is
// silent (cluster_protocol.h). What is said is its owner's.

#include <functional>
#include <string>
#include <utility>

#include "daemon/cluster/cluster_channel.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/lived_timer.h"
#include "proto/status.h"

namespace afd::daemon {

class ClusterLink {
  public:
    // The peer is known, something has come, or the link is over. Messages, also those that came
    // before the end, are in channel(). Nothing follows a failure. The call may destroy the link.
    // Errors: of ClusterChannel::read(), with the peer's name. kDeadlineExceeded: it is silent.
    using OnRead = std::function<void(const Result<>& outcome)>;

    // `peer`: who is at the other end, for messages. REQUIRES: `loop` outlives the link.
    ClusterLink(EventLoop& loop, ClusterChannel channel, std::string peer, OnRead on_read);

    ClusterChannel& channel() { return channel_; }
    const std::string& peer() const { return peer_; }
    int fd() const { return channel_.fd(); }

    // From now on another one hears. What has come and was not taken waits for the next call.
    void set_on_read(OnRead on_read) { on_read_ = std::move(on_read); }

    template <typename Message>
    void send(const Message& message) {
        channel_.queue(message);
        flush();
    }

    // While whoever gets what comes here has enough. A link that is paused does not judge silence.
    void pause();
    void go_on();

  private:
    void on_socket(int events);
    void flush();
    void watch();
    void end(const Error& error);

    ClusterChannel channel_;
    const std::string peer_;
    OnRead on_read_;
    FdWatcher watcher_;
    LivedTimer silence_;
    NextTurn failed_;
    Error failure_;
    bool is_paused_ = false;
    bool is_over_ = false;
};

}  // namespace afd::daemon
