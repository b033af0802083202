// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerPort: where the two threads of a worker meet. Two bounded rings and their wake-ups.
//
//   data thread                     control thread (libuv)
//     push(event) ... flush() --->    wake_fd() readable -> begin_drain(), pop_event()..., rest()
//     pop_command()           <---    push_command()
//
// The data thread never blocks here: it schedules a sequence only with event_room() for what
// that step can produce, and flush() makes at most one eventfd write, only after a push() and only
// if the control thread sleeps. The control thread wakes the data thread by writing the worker's
// own doorbell eventfd after push_command(): a data thread that sleeps (R9) must look at
// has_command() after it armed and before it sleeps, as it looks at its flags.
//
// Ordering of the wake-up of the control thread: rest() stores "sleeping" and then looks at the
// ring; flush() comes after push() and reads "sleeping". Both are read-modify-write operations on
// one word, so they are totally ordered: either flush() sees "sleeping" and writes the eventfd,
// or rest() reads from flush() and then sees the event. No event is left behind.

#include <atomic>
#include <cstddef>

#include "daemon/control/spsc_ring.h"
#include "daemon/control/worker_events.h"
#include "daemon/loop/unique_fd.h"

namespace afd::daemon {

class WorkerPort {
  public:
    // `doorbell_fd`: the worker's own doorbell eventfd, not owned; -1 in tests that never sleep.
    // REQUIRES: event_capacity is at least the events that one step can produce.
    WorkerPort(size_t event_capacity, size_t command_capacity, int doorbell_fd);

    // --- data thread ---

    // The next command, false if there is none.
    bool pop_command(WorkerCommand& command) { return commands_.pop(command); }
    bool has_command() const { return !commands_.empty(); }

    // How many events can certainly be pushed now.
    size_t event_room() const { return events_.room(); }

    // Queues one event for the control thread; false (and nothing queued) if there is no room.
    // event_room() must be asked before, of a kWait too: the last places may be promised to events
    // that must not be lost.
    bool push(WorkerEvent&& event) {
        is_flushed_ = false;
        return events_.push(std::move(event));
    }

    // Wakes the control thread if it sleeps and something was pushed. Once per step, after the
    // pushes.
    void flush();

    // --- control thread ---

    int wake_fd() const { return wake_.get(); }

    // Takes the wake-up back; then pop_event() until false, then rest().
    void begin_drain();
    bool pop_event(WorkerEvent& event) { return events_.pop(event); }
    bool has_event() const { return !events_.empty(); }

    // Declares the control thread asleep. False: events came meanwhile, drain again.
    bool rest();

    // Queues one command and rings the data thread; false if the ring is full, and `command` is as
    // it was.
    bool push_command(WorkerCommand&& command);

  private:
    SpscRing<WorkerEvent> events_;
    SpscRing<WorkerCommand> commands_;
    UniqueFd wake_;
    const int doorbell_fd_;
    bool is_flushed_ = true;  // Of the data thread: nothing was pushed since it last flushed.
    // Alone on its line: the data thread exchanges it at every step.
    alignas(128) std::atomic<bool> control_sleeps_{true};
};

}  // namespace afd::daemon
