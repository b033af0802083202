// SPDX-License-Identifier: Apache-2.0
#pragma once

// Takeover: this afdd takes the place of one that runs (`afdctl upgrade`): the new side of
// daemon/handover/. All on afdd's loop.
//
//   starting -> ready -> serving -> over
//
// starting   workers start, and no client is served
// ready      the doors are open and nobody is let in: the old one is told, and says when
// serving    connections are this one's to accept; the old one finishes what it has, and sends
//            connections and streams when nothing runs for them
// over       the old one is gone. If it goes before `serving`, this one serves what there is.

#include <memory>
#include <string>

#include "daemon/afdd/doors.h"
#include "daemon/gateway/gateway.h"
#include "daemon/handover/predecessor.h"
#include "daemon/instance/instance_lock.h"
#include "daemon/instance/service_life.h"
#include "daemon/loop/event_loop.h"
#include "proto/handover.pb.h"

namespace afd::daemon {

class Takeover final : private PredecessorListener {
  public:
    explicit Takeover(std::unique_ptr<Predecessor> predecessor)
        : predecessor_(std::move(predecessor)) {}

    Predecessor& predecessor() { return *predecessor_; }
    // Whether the old one is there.
    bool is_on() const { return predecessor_ != nullptr && !predecessor_->has_gone(); }
    // What it is doing, for the status; empty: it is over.
    std::string text() const;

    // The loop is about to run. REQUIRES: all of these outlive the object.
    void begin(EventLoop& loop, Gateway& gateway, ServiceLife& life, const InstanceLock& lock);
    // Every worker serves, and these are open.
    void on_ready(Doors& doors);
    // This afdd is to end, or cannot serve.
    void say_ending();
    void say_failed(const std::string& message);

  private:
    void serve();

    void on_go() override;
    void take(HandedConnection connection) override;
    void take(HandedStream stream) override;
    void on_remaining(const handover::Remaining& remaining) override;
    void on_predecessor_gone(const Error& why) override;

    std::unique_ptr<Predecessor> predecessor_;
    std::unique_ptr<Timer> sign_timer_;  // Of the signs of life, until it is ready.
    Gateway* gateway_ = nullptr;
    ServiceLife* service_life_ = nullptr;
    const InstanceLock* lock_ = nullptr;
    Doors* doors_ = nullptr;  // Null: not ready.
    bool serves_ = false;
    handover::Remaining remaining_;
};

}  // namespace afd::daemon
