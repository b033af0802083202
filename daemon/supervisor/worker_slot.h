// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerSlot: one place for a worker (session s, or FFN rank r) and the process that has it.
//
//              spawn / Hello            Ready
//     down ------------------> starting -------> ready
//      ^                          |                |
//      +--- back-off -------------+--- process gone (reaped, R8) --+
//
// A worker whose run_flag was set to 0 is told to end, unless it has seen that itself; its slot
// then stays down, and refuses whoever asks for it, until the flag is set to 1. What is stored into
// the shared word by others is no such wish.
//
// A slot is given to a new process only after the old one is known to be gone. Whatever breaks
// the tie to a living process (bad bytes, a closed socket, a hang) makes the slot kill it; the
// rest follows from its end.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/control_channel.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/lived_timer.h"
#include "daemon/program/log_limit.h"
#include "daemon/supervisor/back_off.h"
#include "daemon/supervisor/hang_detector.h"
#include "daemon/supervisor/slot_health.h"
#include "daemon/supervisor/stop_detector.h"
#include "daemon/supervisor/worker_end.h"
#include "daemon/supervisor/worker_process.h"
#include "daemon/supervisor/worker_wire.h"
#include "proto/client.pb.h"
#include "proto/control.pb.h"

namespace afd::daemon {

class WorkerSlot;

// What the owner of the slots hears. No call may destroy the slot.
class WorkerSlotListener {
  public:
    virtual ~WorkerSlotListener() = default;
    virtual void on_worker_ready(WorkerSlot& slot, const control::Ready& ready) = 0;
    virtual void on_worker_events(WorkerSlot& slot, const control::Events& events) = 0;
    // The worker began to report that it waits for a peer (wait_text()), or said that it is over.
    virtual void on_worker_wait(WorkerSlot& slot) = 0;
    // A worker, in whatever state, wants the memory of a two-phase round, or needs it no more. The
    // request is to be answered.
    virtual void on_segment_request(WorkerSlot& slot, const control::SegmentRequest& request) = 0;
    virtual void on_segment_release(WorkerSlot& slot, const control::SegmentRelease& release) = 0;
    // An attention worker can do without a round at a rank (R12). The request is to be answered.
    virtual void on_void_request(WorkerSlot& slot, const control::VoidRequest& request) = 0;
    // A worker, in whatever state, has its weights, and asks what is voided at its rank (R12). It
    // is to be answered.
    virtual void on_worker_loaded(WorkerSlot& slot) = 0;
    // An FFN worker, in whatever state, says where sessions find it.
    virtual void on_worker_listens(WorkerSlot& slot, const control::Listening& listening) = 0;
    // The process is gone, and everything that it had sent was delivered before.
    virtual void on_worker_gone(WorkerSlot& slot, const WorkerEnd& end) = 0;
    // The slot does not try again: too many failures before it was ever ready, or one that no
    // further attempt can mend.
    virtual void on_worker_given_up(WorkerSlot& slot, const std::string& why) = 0;
    // A worker that was ready before does not start again, or dies whenever it has: failure() says
    // why. The slot goes on trying; on_worker_ready() or on_worker_settled() tells that it has
    // succeeded.
    virtual void on_worker_failing(WorkerSlot& slot) = 0;
    // A worker that had died soon after it was ready, again and again, has now lived longer.
    virtual void on_worker_settled(WorkerSlot& slot) = 0;
    // is_halted() has changed.
    virtual void on_worker_halted(WorkerSlot& slot) = 0;
};

class WorkerSlot {
  public:
    enum class State { kDown, kStarting, kReady };

    // A worker that dies so soon after it was ready has not served.
    static constexpr uint64_t kSettleMs = 1000;

    struct Settings {
        control::Role role = control::ROLE_UNSPECIFIED;
        uint32_t index = 0;
        bool spawn = true;
        // There was a process before the first of this slot, which had been ready.
        bool has_predecessors = false;
        std::string executable;
        std::vector<std::string> arguments;
        uint64_t restart_first_ms = 0;
        uint64_t restart_max_ms = 0;
        uint64_t restart_reset_ms = 0;
        uint64_t start_attempts = 1;
        uint64_t start_timeout_ms = 0;  // Without load_ms; 0: never.
        uint64_t load_ms = 0;           // What a slow machine takes for the weights.
        uint64_t hang_timeout_ms = 0;
        uint64_t stop_timeout_ms = 0;
        // Writes the run_flag of the worker's ScheduleContext; empty: it has none.
        std::function<void(bool runs)> show_run_flag;
        // On which host it runs, for the status; empty: this one.
        std::string host;
        // Why no process can be started now, behind the worker's name; empty: one can. start() is
        // called again when that may have changed. No function: one always can.
        std::function<std::string()> hindrance;
        control::Welcome welcome;
        // Adds what a Welcome of just now has besides; empty: nothing.
        std::function<void(control::Welcome&)> complete_welcome;
        // Why that FFN worker does not answer, as absence() says it. No function: nobody knows.
        std::function<std::string(uint32_t rank)> absence_of_rank;
        // What travels with the Welcome; stays the supervisor's.
        std::vector<int> fds;
    };

    WorkerSlot(EventLoop& loop, Settings settings, WorkerSlotListener& listener);

    // Starts the process (with spawn), or waits for one. Nothing, if there is one, or a hindrance.
    void start();

    // A process asks for this slot over `channel`. Sends the Welcome.
    // Errors: the reason to refuse it; `channel` is left as it is.
    Result<> take(ControlChannel& channel, const control::Hello& hello, int peer_pid);

    // As WorkerWire has them; nothing happens unless a worker is connected.
    void send(const control::SupervisorMessage& message);
    Result<> send(const control::SupervisorMessage& message, std::vector<UniqueFd> fds);
    void answer(const control::SupervisorMessage& message);
    Result<> answer(const control::SupervisorMessage& message, std::vector<UniqueFd> fds);

    // Deaths of this worker when it was ready are forgotten, as if it had lived long since then.
    void excuse_deaths();

    // Looks for a hang (hang_detector.h) and a stop (stop_detector.h) and kills if there is one.
    void check_heartbeat(const schedule::HeartbeatView& view, bool is_needed);

    // false: tells the worker to end, forgets its failures, and starts no other before true. The
    // worker sees it in its ScheduleContext, too.
    void set_run_flag(bool runs);

    // Tells the worker to end, and starts no other.
    void shut_down();
    // SIGKILL for the process if there is one.
    void kill(const std::string& why);

    control::Role role() const { return settings_.role; }
    uint32_t index() const { return settings_.index; }
    const std::string& host() const { return settings_.host; }
    State state() const { return state_; }
    bool has_process() const { return process_ != nullptr; }
    // Since the slot exists.
    uint32_t num_processes() const { return num_processes_; }
    // 0: there is no process.
    int pid() const { return process_ == nullptr ? 0 : process_->pid(); }
    // "attention worker 1", "ffn worker 0".
    const std::string& name() const { return name_; }
    // As commands name it: "attention1", "ffn0".
    std::string short_name() const;
    // Why this worker, which was ready once or is of another host, cannot start: start_attempts
    // failures in a row, one that no further attempt can mend, or what hinders it, or did until it
    // is ready; without spawn it says who has to start it. A death within kSettleMs of being ready
    // is a failure too, but R11's three kills come on top, since what killed the worker may be a
    // round that is about to be refused. Empty: it can, as far as is known.
    std::string failure() const { return health_.failure(); }
    bool is_halted() const { return halted_; }
    bool waits() const { return !wait_.text().empty(); }
    // Who this worker waits for (R7), and what that one does now; or empty.
    std::string wait_text() const;
    // "the peer is dead, starts again in 3200 ms": why nobody in this place serves; empty: one
    // does.
    std::string absence() const;

    // The part of the status that the slot knows.
    void fill_status(client::Worker& status) const;

  private:
    void on_closed();
    void take_message(const control::WorkerMessage& message);
    void on_links(const control::Links& links);
    void on_wait(const control::WaitReport& report);
    void check_stop(bool is_needed);
    // What holds the worker up. REQUIRES: there is a process.
    control::Stop stop() const;
    bool is_hindered();
    void spawn_process();
    void on_started();
    void kill_for_fault(const std::string& why);
    bool is_fault(const ProcessEnd& end) const;
    std::string end_reason(const ProcessEnd& end) const;
    // How the present process came to its end.
    struct Ending {
        bool was_ready = false;
        bool was_settled = false;
        bool is_fault = false;
        bool cannot_mend = false;  // The next process would meet the same.
        std::string reason;
    };
    void on_gone(const ProcessEnd& end);
    void take_last_words();
    // Before forget_process().
    Ending describe(const ProcessEnd& end) const;
    void log_end(int pid, const Ending& ending) const;
    void forget_process();
    void after_end(const Ending& ending);
    void show_run_flag() const;
    void halt();
    void resume();
    void tell_to_end();
    void on_settled();
    // `num_more`: failures beyond start_attempts that are borne.
    void count_failure(const std::string& why, bool is_permanent, uint64_t num_more = 0);
    void start_later();

    EventLoop& loop_;
    const Settings settings_;
    WorkerSlotListener& listener_;
    const std::string name_;

    State state_ = State::kDown;
    std::unique_ptr<WorkerProcess> process_;
    std::unique_ptr<WorkerWire> wire_;  // Null: no worker is connected.
    Timer restart_timer_;
    LivedTimer start_timer_;  // Kills a worker that does not get ready.
    Timer settle_timer_;      // Since it is ready.
    BackOff back_off_;
    SlotHealth health_;
    HangDetector hang_detector_;
    StopDetector stop_detector_;

    Timer end_timer_;  // Kills a worker that was halted and does not end.
    bool shutting_down_ = false;
    bool is_to_run_ = true;  // run_flag.
    // run_flag is 0; or it was, and the process that was told to end is still there.
    bool halted_ = false;
    uint32_t num_processes_ = 0;
    uint64_t started_ms_ = 0;
    uint64_t restart_due_ms_ = 0;                     // While restart_timer_ runs.
    std::optional<control::Fatal> fatal_;             // What the present process said at its end.
    std::string kill_reason_;                         // Why the slot ends the present process.
    bool is_killed_for_fault_ = false;                // And that is for what it did.
    control::Links links_;                            // As the present process measured them last.
    control::Stop remote_stop_ = control::STOP_NONE;  // Of a worker on another host.
    control::WaitReport wait_;
    LogLimit wait_lines_;
};

}  // namespace afd::daemon
