// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerDoor: the control socket of an instance, and who takes its visitors in (visitors.h).
// Usually that is one Supervisor. While a resize runs there are two, and each worker goes to the
// one that has started its process.
//
// Everything happens on the loop's thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/socket_listener.h"
#include "daemon/supervisor/visitors.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// Who has slots for workers.
class SlotOwner {
  public:
    virtual ~SlotOwner() = default;
    virtual size_t num_workers() const = 0;
    // Whether one of its slots has this process.
    virtual bool has_process(int pid) const = 0;
    // Visitors::Admit, for a worker that speaks this afdd's version of control.proto.
    virtual Result<> give_slot(ControlChannel& channel, const control::Hello& hello, int pid) = 0;
};

class WorkerDoor {
  public:
    // Listens; visitors are refused as long as nobody has slots.
    // REQUIRES: `loop` outlives the object.
    // Errors: those of SocketListener::listen().
    static Result<std::unique_ptr<WorkerDoor>> open(EventLoop& loop, const std::string& path);

    // REQUIRES: it lives until remove().
    void add(SlotOwner& owner);
    void remove(const SlotOwner& owner);

  private:
    explicit WorkerDoor(EventLoop& loop);
    Result<> admit(ControlChannel& channel, const control::Hello& hello, int pid) const;
    // Null: none has this process.
    SlotOwner* owner_of(int pid) const;
    void limit_visitors();

    std::vector<SlotOwner*> owners_;  // The first has been here for the longest.
    Visitors visitors_;
    std::unique_ptr<SocketListener> listener_;
};

}  // namespace afd::daemon
