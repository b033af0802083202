// SPDX-License-Identifier: Apache-2.0
#pragma once

// Upgrader: puts another afdd in the place of this one (`afdctl upgrade`): the old side of
// daemon/handover/. All on afdd's loop.
//
//   none -> starting -> leaving -> (this afdd ends)
//           starting -> none        the new one cannot serve: nothing has changed
//                       leaving -> none
//                                   the new one is gone: this one accepts connections again
//
// starting   the new one starts beside this one, with workers of its own, and serves nobody
// leaving    it accepts connections; this one finishes what it has, and gives away connections for
//            which nothing runs (daemon/gateway/departure.h). Those that cannot leave, because
//            their last answer is not read or the new one does not take them, are waited for as
//            long as in a drain
//
// Why two programs and not one that takes over the other's workers: an answer that has begun must
// keep its bits (promise 1), and those are of the program that began it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/afdd/doors.h"
#include "daemon/gateway/gateway.h"
#include "daemon/handover/successor.h"
#include "daemon/instance/instance_setup.h"
#include "daemon/instance/service_life.h"
#include "daemon/loop/event_loop.h"
#include "proto/handover.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Upgrader final : private SuccessorListener {
  public:
    struct Surroundings {
        std::vector<std::string> command_line;  // Of this process, the program first.
        const Config* config = nullptr;
        ServiceLife* life = nullptr;
        InstanceSetup* setup = nullptr;
        Gateway* gateway = nullptr;
        std::unique_ptr<Doors>* doors = nullptr;  // Open when begin() is called.
        // Why it cannot begin now, as far as the rest of the instance knows.
        std::function<Result<>()> check_possible;
        // The new one has ended as it was asked to, so this one is to drain.
        std::function<void()> on_ended;
        // The new one has all that there was.
        std::function<void()> on_left;
    };
    // REQUIRES: all of these outlive the object.
    Upgrader(EventLoop& loop, Surroundings surroundings);

    // Begins; what comes of it goes to Gateway::end_change(), not within this call. Errors: those
    // of client::Upgrade that are known at once.
    Result<> begin();

    // Gateway::leave_to() has come to its end.
    void on_departed();
    // What it does now, for the status; empty: nothing.
    std::string text() const;
    // Errors while it is on: kFailedPrecondition, for whoever would disturb it.
    Result<> check_idle() const;
    // The instance is to end: a successor that does not serve yet is for nothing.
    void cancel();

  private:
    enum class Step { kNone, kStarting, kLeaving };

    Doors& doors() const { return **surroundings_.doors; }
    Successor::Start start_of_successor() const;
    void leave(const handover::Ready& ready);
    void stay();
    void fail(const Error& error);
    void tell_remaining();
    void end_here();
    void bound_the_rest(const handover::Remaining& remaining);

    void on_progress(const std::string& text) override;
    void on_ready(const handover::Ready& ready) override { leave(ready); }
    void on_gone(const std::string& why) override;

    EventLoop& loop_;
    const Surroundings surroundings_;
    Gateway& gateway_;
    Timer remaining_timer_;
    Timer rest_timer_;  // Ends the wait for connections that cannot leave.
    Step step_ = Step::kNone;
    bool is_cancelled_ = false;
    bool has_departed_ = false;
    bool has_left_ = false;  // This afdd ends, whatever becomes of the new one.
    uint64_t began_us_ = 0;
    std::unique_ptr<Successor> successor_;
    std::string told_;  // The Remaining that it has, as bytes.
};

}  // namespace afd::daemon
