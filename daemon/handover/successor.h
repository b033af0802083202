// SPDX-License-Identifier: Apache-2.0
#pragma once

// Successor: the afdd that is to take the place of this one, from its start on; the old end of
// handover.proto.
//
// It is a child of this process that outlives it. Until go() it serves nobody, and its end costs
// nothing.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/gateway/session/handed_connection.h"
#include "daemon/handover/handover_wire.h"
#include "daemon/loop/child_process.h"
#include "daemon/loop/event_loop.h"
#include "proto/handover.pb.h"
#include "proto/status.h"

namespace afd::daemon {

// Who has started it. No call comes within one of the Successor's.
class SuccessorListener {
  public:
    virtual ~SuccessorListener() = default;
    virtual void on_progress(const std::string& text) = 0;
    // Not of one that has ended since.
    virtual void on_ready(const handover::Ready& ready) = 0;
    // The process is gone. `why`: what it said, or how it ended. It may destroy the Successor.
    virtual void on_gone(const std::string& why) = 0;
};

class Successor final : public Heir {
  public:
    // The variable in which it finds the number of its descriptor.
    static constexpr const char* kVariable = "AFD_TAKE_OVER";

    struct Start {
        std::vector<std::string> command_line;  // The program first.
        std::vector<std::string> environment;   // "KEY=value", beside that of this process.
        handover::Offer offer;                  // All but the version.
        std::vector<int> fds;                   // Of the offer; stay the caller's.
        uint64_t silence_max_ms = 0;            // Before go(), then it is killed; 0: never.
    };
    // REQUIRES: `loop` and `listener` outlive the object.
    // Errors: it cannot be started.
    static Result<std::unique_ptr<Successor>> start(EventLoop& loop,
                                                    Start start,
                                                    SuccessorListener& listener);

    int pid() const { return process_->pid(); }
    // From here on it accepts connections. REQUIRES: on_ready() has come.
    void go();
    void take(HandedConnection connection) override;
    void take(HandedStream stream) override;
    void tell(const handover::Remaining& remaining);
    // It has, or can read, all that it was given.
    bool has_got_all() const { return wire_->has_sent_all(); }
    // It was asked to end, and ends when this process has.
    bool is_ending() const { return is_ending_; }
    void kill() { process_->kill(); }

  private:
    Successor(EventLoop& loop,
              UniqueFd socket,
              SuccessorListener& listener,
              uint64_t silence_max_ms);
    Result<> take_messages();
    Result<> on_message(const handover::ToOld& message);
    void on_process_gone(const ProcessEnd& end);
    void hear();
    void on_silence();

    SuccessorListener& listener_;
    const uint64_t silence_max_ms_;
    ControlChannel channel_;
    Timer silence_;
    std::unique_ptr<HandoverWire> wire_;
    std::unique_ptr<ChildProcess> process_;
    bool is_gone_ = false;  // Its process.
    bool is_ready_ = false;
    bool is_ending_ = false;
    std::string said_;  // Why it ends, as it or this side says.
};

}  // namespace afd::daemon
