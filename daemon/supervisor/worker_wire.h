// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerWire: afdd's end of the control channel of one worker process, on the loop. Takes what the
// worker says in its share of each turn, sends, and bounds what the worker leaves unread. What is
// said is its owner's (worker_slot.h).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/control/flush_retry.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/turn_budget.h"
#include "daemon/loop/unique_fd.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class WorkerWire {
  public:
    // Descriptors of two-phase rounds that wait for the worker to read them, at most.
    static constexpr size_t kUnreadFdsMax = 64;
    // Answers that wait for the worker to read them, at most. It asks about one round a micro-batch
    // and session at a time.
    static constexpr uint32_t kUnreadAnswersMax = 4096;

    // No call may destroy the wire.
    struct Owner {
        std::function<void(const control::WorkerMessage& message)> on_message;
        // What the worker does, for which it is to be killed.
        std::function<void(const std::string& why)> on_fault;
        // The worker has closed its end.
        std::function<void()> on_closed;
    };

    // `worker`: its name, for messages. REQUIRES: `loop` outlives the wire.
    WorkerWire(EventLoop& loop, std::string worker, ControlChannel channel, Owner owner);

    // `fds` stay the caller's, and must stay open as long as the wire.
    void send(const control::SupervisorMessage& message, std::span<const int> fds = {});
    // The same with descriptors of its own. Errors: kResourceExhausted: the worker has
    // kUnreadFdsMax of them that it has not read.
    Result<> send(const control::SupervisorMessage& message, std::vector<UniqueFd> fds);
    // The same of an answer, with descriptors or without: who asks and asks and does not read is at
    // fault.
    void answer(const control::SupervisorMessage& message);
    Result<> answer(const control::SupervisorMessage& message, std::vector<UniqueFd> fds);

    // All that a process which is gone has sent.
    void take_rest();

  private:
    void on_socket(int events);
    void take_turn();
    // Takes the messages that are read, as far as `budget` goes; without one, all. False: some
    // wait, or the worker sent bad bytes.
    bool take_messages(TurnBudget* budget);
    // False: there are too many.
    bool count_answer();
    void flush();

    const std::string worker_;
    const Owner owner_;
    ControlChannel channel_;
    uint32_t num_unread_answers_ = 0;  // At most: some may have been read.
    FdWatcher watcher_;
    FlushRetry flush_retry_;
    NextTurn next_turn_;  // Asked: messages of the worker wait.
};

}  // namespace afd::daemon
