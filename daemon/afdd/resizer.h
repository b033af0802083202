// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resizer: gives the instance other numbers of workers while it serves. All on afdd's loop.
//
// A resize makes a second crew (crew.h) in the way in which an instance makes its first, and then
// moves the requests as after the death of all attention workers at once (replay.h): they go on,
// with the same bits, behind the tokens that their clients have.
//
//   none -> laying -> starting -> ending -> none          the new crew starts beside the old one
//                     starting -> undoing -> none         it cannot: the old one has served on
//   none -> laying -> ending -> starting alone -> none    with stop_first
//                               starting alone -> going back -> none
//                                                         it cannot: the old one starts again
//
// laying         experts are placed and the segments of the new crew are made, on a thread: a
//                library may take its time to answer, and so does clearing memory
// starting       its processes start, hear of no request, and are ready at the end
// ending         the old processes end; requests stand still
// starting alone the new crew serves as soon as some of it are ready
//
// What cannot be had (memory, descriptors, an expert for every rank) is refused or undone, and
// nothing has changed. The old crew's segments stay until the new one serves. A drain that ends the
// instance cancels a resize before `ending` and lets a later one come to its end. What needs which
// order is shown by a model, docs/protocol/resize.pml.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/afdd/crew.h"
#include "daemon/gateway/gateway.h"
#include "daemon/loop/background_thread.h"
#include "daemon/loop/event_loop.h"
#include "daemon/supervisor/attention_workers.h"
#include "daemon/supervisor/supervisor.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Resizer final : private AttentionListener, private InstanceListener {
  public:
    struct Surroundings {
        std::string worker_directory;  // Where the two worker programs are.
        WorkerDoor* door = nullptr;
        Gateway* gateway = nullptr;
        InstanceListener* instance = nullptr;  // Of the crew that serves.
        std::function<void()> on_end;          // A resize has ended, well or not.
    };

    // `crew` is the one that serves; the resizer puts another in its place.
    // REQUIRES: all of these outlive the object.
    Resizer(EventLoop& loop, std::unique_ptr<Crew>& crew, Surroundings surroundings);

    // Begins; what comes of it goes to Gateway::end_change(), not within this call. Errors: those
    // of client::Resize that are known at once.
    Result<> begin(const client::Resize& asked);

    bool is_on() const { return step_ != Step::kNone; }
    // What it does now, for the status; empty: nothing.
    std::string text() const;
    // Errors while it is on: kFailedPrecondition, for whoever would disturb it.
    Result<> check_idle() const;

    // The instance is to end, once its requests have: begins nothing that is not needed for that.
    void cancel();
    // The instance ends now: so does the crew that does not serve. InstanceListener::on_all_gone()
    // of the surroundings follows if it had processes.
    void shut_down(uint64_t grace_ms);
    bool has_processes() const;

    // Sets the log level of the crew that does not serve, if there is one.
    void set_log_level(const std::string& level);

    // What the serving crew says while a resize is on. Whether it was the resize's business.
    bool on_serving_ready();
    bool on_serving_gone();
    bool on_serving_given_up(const std::string& why);

  private:
    enum class Step {
        kNone,
        kLaying,
        kStarting,
        kEnding,
        kUndoing,
        kStartingAlone,
        kGoingBack,
        kAbandoned,  // The instance ends.
    };

    Result<> check_possible() const;
    Result<> check_files(const Config& config) const;
    Result<> check_room() const;
    Result<> lay();
    void on_laid();
    Result<> start_other();
    void end_serving();
    void undo(const Error& error);
    void go_on();
    void change_over();
    void go_back();
    void succeed();
    void fail(const Error& error);
    void come_to_end();
    void tell(const std::string& text);

    void on_attention_ready(uint32_t, uint64_t) override {}
    void on_attention_gone(uint32_t, const WorkerEnd&) override {}
    void on_events(uint32_t, const control::Events&) override {}
    void on_attention_wait(uint32_t, bool) override {}
    uint32_t num_sequences(uint32_t) const override { return 0; }
    void on_all_ready() override;
    void on_given_up(const std::string& why) override;
    void on_service(const ServiceState& state) override;
    void on_all_gone() override;

    EventLoop& loop_;
    std::unique_ptr<Crew>& crew_;
    const Surroundings surroundings_;
    Gateway& gateway_;
    NextTurn next_turn_;
    Timer look_timer_;
    Step step_ = Step::kNone;
    // The crew that does not serve: the new one, and behind change_over() the old one.
    std::unique_ptr<Crew> other_;
    bool stop_first_ = false;
    bool is_cancelled_ = false;
    std::string target_;          // "3 attention and 2 ffn workers".
    std::optional<Error> error_;  // Why it is undone.
    uint64_t began_us_ = 0;
    uint64_t still_since_us_ = 0;  // 0: requests have not stood still.
    uint64_t num_replays_before_ = 0;
    Result<> laid_;  // What came of kLaying; the thread's until it is over.
    // Last, so that its work has ended before what it works on goes.
    std::unique_ptr<BackgroundThread> thread_;
    std::unique_ptr<BackgroundThread::Job> job_;
};

}  // namespace afd::daemon
