// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventBatch: turns the events of a data thread (worker_events.h) into messages of control.proto.
// The order of one sequence's events is kept; between sequences it does not matter.

#include "daemon/control/control_channel.h"
#include "daemon/control/worker_events.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class EventBatch {
  public:
    void add(const WorkerEvent& event);

    // Whether enough has been added for a message of its own.
    bool is_full() const { return num_events_ >= kEventsMax; }

    // Queues what was added, and is empty again.
    void queue_on(ControlChannel& channel);

    // What was added since the last queue_on(), other messages aside; for tests.
    const control::Events& events() const { return message_.events(); }

  private:
    static constexpr size_t kEventsMax = 4096;

    // Whether the event is a message of its own; then it was added.
    bool add_other(const WorkerEvent& event);

    control::WorkerMessage message_;
    std::vector<control::WorkerMessage> others_;  // Messages that are no Events.
    size_t num_events_ = 0;
};

}  // namespace afd::daemon
