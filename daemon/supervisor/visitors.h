// SPDX-License-Identifier: Apache-2.0
#pragma once

// Visitors: connections on the control socket that have not said who they are. Any process of this
// user can connect; what does not say Hello costs two seconds of a descriptor, and more than
// num_max() at a time are refused; afdd's own processes get the place of a stranger. The first
// message must be a Hello, which the caller judges: it takes the connection over, or the visitor is
// told why not and leaves.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/socket_listener.h"
#include "daemon/program/log_limit.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Visitors {
  public:
    // Takes the channel over, which nothing else watches any more, or says why not.
    using Admit = std::function<Result<>(ControlChannel& channel, const control::Hello&, int pid)>;

    // Whether afdd has started this process.
    using IsOwn = std::function<bool(int pid)>;

    static constexpr size_t num_max(size_t num_workers) { return num_workers + 64; }

    // None is taken before limit().
    Visitors(EventLoop& loop, Admit admit, IsOwn is_own);
    ~Visitors();

    // For an instance of `num_workers` workers: at most num_max() of them at a time from now on.
    void limit(size_t num_workers) { num_max_ = num_max(num_workers); }

    void add(UniqueFd socket, PeerCredentials peer);

  private:
    struct Visitor;

    void make_room();
    void on_deadline(Visitor& visitor);
    bool on_readable(Visitor& visitor);
    Result<bool> serve(Visitor& visitor);
    void dismiss(Visitor& visitor, const std::string& why);
    void warn_of_refused(int pid, const std::string& why);

    EventLoop& loop_;
    size_t num_max_ = 0;
    const Admit admit_;
    const IsOwn is_own_;
    std::vector<std::unique_ptr<Visitor>> visitors_;  // The first has been here for the longest.
    LogLimit refused_;
};

}  // namespace afd::daemon
