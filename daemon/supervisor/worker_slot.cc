// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/worker_slot.h"

#include "daemon/config/config.h"
#include "daemon/config/worker_name.h"
#include "daemon/program/logging.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"
#include "proto/state_names.h"
#include "schedule/layout/execution_log.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kWaitLogMs = 5000;
constexpr uint64_t kEndTimeoutMs = 3000;

// Of what a worker says of itself: it is shown in a line of the log, and in every status.
constexpr size_t kTextBytesMax = 1024;

void shorten(std::string& text) {
    text.resize(model::start_of(text, kTextBytesMax).size());
}

// Failures that the next process would meet again.
bool is_permanent_code(uint32_t code) {
    switch (static_cast<Code>(code)) {
        case Code::kInvalidArgument:
        case Code::kNotFound:
        case Code::kDataLoss:
        case Code::kUnimplemented:
            return true;
        default:
            return false;
    }
}

}  // namespace

WorkerSlot::WorkerSlot(EventLoop& loop, Settings settings, WorkerSlotListener& listener)
    : loop_(loop),
      settings_(std::move(settings)),
      listener_(listener),
      name_(worker_name(settings_.role, settings_.index)),
      restart_timer_(loop, [this] { start(); }),
      start_timer_(loop,
                   [this] {
                       kill(fmt::format(
                           "it is not ready after start_timeout_ms = {} and {} ms for its weights",
                           settings_.start_timeout_ms,
                           settings_.load_ms));
                   }),
      settle_timer_(loop, [this] { on_settled(); }),
      back_off_(settings_.restart_first_ms, settings_.restart_max_ms, settings_.restart_reset_ms),
      health_({.name = name_,
               .host = settings_.host,
               .spawn = settings_.spawn,
               .start_attempts = settings_.start_attempts,
               .has_predecessors = settings_.has_predecessors}),
      hang_detector_(settings_.hang_timeout_ms),
      stop_detector_(settings_.stop_timeout_ms),
      end_timer_(loop, [this] { kill("run_flag is 0, and it did not end"); }),
      wait_lines_(kWaitLogMs) {}

std::string WorkerSlot::short_name() const {
    return role_name(settings_.role) + std::to_string(settings_.index);
}

void WorkerSlot::start() {
    if (shutting_down_ || halted_ || process_ != nullptr || !settings_.spawn) return;
    if (is_hindered()) return;
    spawn_process();
    if (health_.on_unhindered()) listener_.on_worker_failing(*this);
}

void WorkerSlot::spawn_process() {
    Result<std::unique_ptr<WorkerProcess>> process = WorkerProcess::spawn(
        loop_, settings_.executable, settings_.arguments, [this](const ProcessEnd& end) {
            on_gone(end);
        });
    if (!process.ok()) {
        // Out of descriptors, for example: without a process nobody else says why.
        log::error("{}: {}", name_, process.error().message);
        count_failure(name_ + ": " + process.error().message, false);
        return;
    }
    process_ = std::move(process).value();
    on_started();
    log::debug("{} started with pid {}", name_, process_->pid());
}

bool WorkerSlot::is_hindered() {
    const std::string why = settings_.hindrance ? settings_.hindrance() : "";
    if (why.empty()) return false;
    if (!health_.on_hindered(why)) return true;
    log::info("{} {}", name_, why);
    listener_.on_worker_failing(*this);
    return true;
}

void WorkerSlot::on_started() {
    state_ = State::kStarting;
    started_ms_ = loop_.now_ms();
    ++num_processes_;
    if (settings_.start_timeout_ms == 0) return;
    start_timer_.start(settings_.start_timeout_ms + settings_.load_ms);
}

Result<> WorkerSlot::take(ControlChannel& channel, const control::Hello& hello, int peer_pid) {
    if (shutting_down_) return failed_precondition("afdd is shutting down");
    if (halted_) {
        // Refused and not told to end: its parent learns why, and how to have it back.
        return failed_precondition(
            "run_flag of {0} is 0; set it with afdctl context --worker {0} --set-run-flag 1",
            with(short_name()));
    }
    // The pid is the kernel's word about the socket, so a slot that afdd fills cannot be taken by
    // another process of this user.
    const bool is_expected =
        settings_.spawn ? process_ != nullptr && wire_ == nullptr && process_->pid() == peer_pid
                        : process_ == nullptr;
    if (!is_expected || static_cast<int>(hello.pid()) != peer_pid) {
        const std::string owner = process_ != nullptr
                                      ? "belongs to pid " + std::to_string(process_->pid())
                                      : "is served by processes that afdd starts (spawn = true)";
        return Error{Code::kAlreadyExists,
                     name_ + " " + owner + ", not to pid " + std::to_string(peer_pid)};
    }
    if (!settings_.spawn) {
        AFD_ASSIGN(process_,
                   WorkerProcess::adopt(
                       loop_, peer_pid, channel.fd(), [this](const auto& end) { on_gone(end); }));
        on_started();
    }
    wire_ = std::make_unique<WorkerWire>(
        loop_,
        name_,
        std::move(channel),
        WorkerWire::Owner{.on_message = [this](const auto& message) { take_message(message); },
                          .on_fault = [this](const std::string& why) { kill_for_fault(why); },
                          .on_closed = [this] { on_closed(); }});
    control::SupervisorMessage answer;
    *answer.mutable_welcome() = settings_.welcome;
    answer.mutable_welcome()->set_process_restarted(settings_.has_predecessors ||
                                                    num_processes_ > 1);
    // Whatever was stored there meanwhile.
    show_run_flag();
    if (settings_.complete_welcome) settings_.complete_welcome(*answer.mutable_welcome());
    answer.mutable_welcome()->set_num_fds(static_cast<uint32_t>(settings_.fds.size()));
    wire_->send(answer, settings_.fds);
    return {};
}

void WorkerSlot::send(const control::SupervisorMessage& message) {
    if (wire_ != nullptr) wire_->send(message);
}

void WorkerSlot::answer(const control::SupervisorMessage& message) {
    if (wire_ != nullptr) wire_->answer(message);
}

Result<> WorkerSlot::answer(const control::SupervisorMessage& message, std::vector<UniqueFd> fds) {
    return wire_ == nullptr ? Result<>() : wire_->answer(message, std::move(fds));
}

Result<> WorkerSlot::send(const control::SupervisorMessage& message, std::vector<UniqueFd> fds) {
    return wire_ == nullptr ? Result<>() : wire_->send(message, std::move(fds));
}

// Usually it is ending, and its end is about to be seen. If it lives on without its socket it can
// never serve again. One that was to end may take a moment: a timer watches it.
void WorkerSlot::on_closed() {
    if (process_ != nullptr && !shutting_down_ && !halted_) process_->end_disconnected();
}

void WorkerSlot::take_message(const control::WorkerMessage& message) {
    switch (message.body_case()) {
        case control::WorkerMessage::kReady:
            if (state_ != State::kStarting) return;
            state_ = State::kReady;
            start_timer_.stop();
            settle_timer_.start(kSettleMs);
            health_.on_ready();
            back_off_.healthy(loop_.now_ms());
            hang_detector_.restart(loop_.now_ms());
            stop_detector_.observe(false, loop_.now_ms());
            listener_.on_worker_ready(*this, message.ready());
            return;
        case control::WorkerMessage::kEvents:
            if (state_ == State::kReady) listener_.on_worker_events(*this, message.events());
            return;
        case control::WorkerMessage::kWait:
            on_wait(message.wait());
            return;
        case control::WorkerMessage::kSegmentRequest:
            // In any state: who asks waits for an answer, also while it starts or is to end.
            listener_.on_segment_request(*this, message.segment_request());
            return;
        case control::WorkerMessage::kSegmentRelease:
            // In any state: memory that a worker gives back while it starts is memory all the same.
            listener_.on_segment_release(*this, message.segment_release());
            return;
        case control::WorkerMessage::kVoidRequest:
            // Likewise.
            listener_.on_void_request(*this, message.void_request());
            return;
        case control::WorkerMessage::kLoaded:
            // Likewise.
            listener_.on_worker_loaded(*this);
            return;
        case control::WorkerMessage::kListening:
            listener_.on_worker_listens(*this, message.listening());
            return;
        case control::WorkerMessage::kLinks:
            on_links(message.links());
            return;
        case control::WorkerMessage::kStopped:
            // Of a process here the kernel says it.
            if (!settings_.host.empty()) remote_stop_ = message.stopped().stop();
            return;
        case control::WorkerMessage::kFatal:
            fatal_ = message.fatal();
            shorten(*fatal_->mutable_message());
            return;
        case control::WorkerMessage::kHello:
        case control::WorkerMessage::BODY_NOT_SET:
            return;
    }
}

void WorkerSlot::on_links(const control::Links& links) {
    // One for each FFN worker at most.
    const bool is_possible = static_cast<uint32_t>(links.links_size()) <= kMostFfnWorkers;
    if (settings_.role == control::ATTENTION && is_possible) links_ = links;
}

void WorkerSlot::on_wait(const control::WaitReport& report) {
    const bool is_news = report.text().empty() == waits();
    wait_ = report;
    shorten(*wait_.mutable_text());
    shorten(*wait_.mutable_peer());
    if (is_news) listener_.on_worker_wait(*this);
    if (!waits()) return;
    const auto num_unsaid = wait_lines_.take(loop_.now_ms());
    if (!num_unsaid) return;
    log::warn("{}: {}{}", name_, wait_text(), LogLimit::more(*num_unsaid));
}

std::string WorkerSlot::wait_text() const {
    if (wait_.peer().empty()) return wait_.text();
    // What a dead worker did last is still in its memory, and is all that the one who waits sees.
    const std::string absence =
        settings_.absence_of_rank ? settings_.absence_of_rank(wait_.rank()) : "";
    return wait_.text() + "; " + (absence.empty() ? wait_.peer() : absence);
}

std::string WorkerSlot::absence() const {
    if (state_ == State::kReady) return "";
    if (state_ == State::kStarting) {
        // On another host it has another pid than its stand-in here.
        return settings_.host.empty() ? fmt::format("the peer is starting (pid {})", pid())
                                      : "the peer is starting on host " + settings_.host;
    }
    if (halted_) return "the peer is halted";
    if (restart_timer_.is_active()) {
        const uint64_t now_ms = loop_.now_ms();
        return fmt::format("the peer is dead, starts again in {} ms",
                           restart_due_ms_ > now_ms ? restart_due_ms_ - now_ms : 0);
    }
    if (health_.is_hindered()) {
        return "the peer is away: its host " + settings_.host + " has not joined";
    }
    return "the peer is dead";
}

void WorkerSlot::check_heartbeat(const schedule::HeartbeatView& view, bool is_needed) {
    // One that starts is needed: the instance waits for it.
    if (process_ != nullptr) check_stop(is_needed || state_ == State::kStarting);
    if (state_ != State::kReady) return;
    if (!hang_detector_.observe(view, is_needed, loop_.now_ms())) return;
    const bool is_stopped = stop() != control::STOP_NONE;
    const std::string why = fmt::format("no progress for {} ms (hang_timeout_ms = {}, state {}{})",
                                        hang_detector_.silent_ms(),
                                        settings_.hang_timeout_ms,
                                        schedule::worker_state_name(view.state),
                                        is_stopped ? ", it is stopped" : "");
    is_stopped ? kill(why) : kill_for_fault(why);
    hang_detector_.restart(loop_.now_ms());
}

void WorkerSlot::check_stop(bool is_needed) {
    // The look costs system calls: only where it matters.
    const bool holds_up = is_needed && stop_detector_.is_on() && stop() == control::STOP_SIGNAL;
    if (!stop_detector_.observe(holds_up, loop_.now_ms())) return;
    kill(fmt::format("a signal stopped it, and somebody has waited for it for stop_timeout_ms = {}",
                     settings_.stop_timeout_ms));
    stop_detector_.observe(false, loop_.now_ms());
}

control::Stop WorkerSlot::stop() const {
    const control::Stop own = stop_of_process(process_->pid());
    return own == control::STOP_NONE ? remote_stop_ : own;
}

void WorkerSlot::set_run_flag(bool runs) {
    is_to_run_ = runs;
    show_run_flag();
    runs ? resume() : halt();
}

void WorkerSlot::show_run_flag() const {
    if (settings_.show_run_flag) settings_.show_run_flag(is_to_run_);
}

void WorkerSlot::halt() {
    if (halted_ || shutting_down_) return;
    halted_ = true;
    restart_timer_.stop();
    health_.forget();
    if (process_ != nullptr) {
        log::info(
            "{} is to end and to stay away (drain-worker, restart-worker or context set its "
            "run_flag to 0)",
            name_);
        end_timer_.start(kEndTimeoutMs);
        tell_to_end();
    }
    listener_.on_worker_halted(*this);
}

void WorkerSlot::resume() {
    // While the old process lives the slot stays halted; at its end it is resumed.
    if (!halted_ || process_ != nullptr) return;
    halted_ = false;
    log::info("{} may run again (restart-worker or context set its run_flag to 1)", name_);
    listener_.on_worker_halted(*this);
    start();
}

void WorkerSlot::shut_down() {
    shutting_down_ = true;
    restart_timer_.stop();
    start_timer_.stop();
    end_timer_.stop();
    tell_to_end();
}

void WorkerSlot::tell_to_end() {
    control::SupervisorMessage message;
    message.mutable_shutdown();
    send(message);
    // A spawned process that has not said Hello yet cannot be told.
    if (process_ != nullptr && wire_ == nullptr) process_->kill();
}

void WorkerSlot::kill(const std::string& why) {
    if (process_ == nullptr) return;
    if (!why.empty()) log::error("killing {} (pid {}): {}", name_, process_->pid(), why);
    kill_reason_ = why;
    process_->kill();
}

void WorkerSlot::kill_for_fault(const std::string& why) {
    // The last words of a process that is gone come here again.
    if (process_ == nullptr) return;
    is_killed_for_fault_ = true;
    kill(why);
}

void WorkerSlot::on_gone(const ProcessEnd& end) {
    // Out of the way, so that nothing below signals a pid that may have a new owner.
    const std::unique_ptr<WorkerProcess> gone = std::move(process_);
    take_last_words();
    const Ending ending = describe(end);
    log_end(gone->pid(), ending);
    forget_process();
    listener_.on_worker_gone(*this,
                             {.is_fault = ending.is_fault, .how = name_ + " " + ending.reason});
    after_end(ending);
}

// What it sent before its end still counts: tokens that clients may have seen.
void WorkerSlot::take_last_words() {
    if (wire_ == nullptr) return;
    wire_->take_rest();
    wire_.reset();
}

WorkerSlot::Ending WorkerSlot::describe(const ProcessEnd& end) const {
    const bool was_ready = state_ == State::kReady;
    return {.was_ready = was_ready,
            .was_settled = was_ready && !settle_timer_.is_active(),
            .is_fault = was_ready && is_fault(end),
            .cannot_mend = fatal_ && is_permanent_code(fatal_->code()),
            .reason = end_reason(end)};
}

void WorkerSlot::log_end(int pid, const Ending& ending) const {
    if (shutting_down_) return;
    if (halted_) {
        log::info("{} (pid {}) ended: run_flag is 0", name_, pid);
        return;
    }
    // The log has a line about the hindrance already.
    if (settings_.hindrance && !settings_.hindrance().empty()) {
        log::info("{} (pid {}) ended with its host '{}'", name_, pid, settings_.host);
        return;
    }
    const char* during = ending.was_ready ? "" : ", before it was ready:";
    log::error("{} (pid {}){} {}", name_, pid, during, ending.reason);
}

void WorkerSlot::forget_process() {
    state_ = State::kDown;
    start_timer_.stop();
    settle_timer_.stop();
    end_timer_.stop();
    wait_.Clear();
    links_.Clear();
    remote_stop_ = control::STOP_NONE;
    fatal_.reset();
    kill_reason_.clear();
    is_killed_for_fault_ = false;
}

void WorkerSlot::after_end(const Ending& ending) {
    if (shutting_down_) return;
    if (halted_) {
        if (is_to_run_) resume();
    } else if (ending.was_settled) {
        // It served: that it died says nothing about its successor.
        start_later();
    } else if (ending.was_ready) {
        health_.on_short_life();
        // In front, because the reason can end with what the worker says.
        count_failure(name_ + ", as soon as it was ready: " + ending.reason,
                      false,
                      schedule::ExecutionLog::kDeadly);
    } else {
        count_failure(name_ + " " + ending.reason, ending.cannot_mend);
    }
}

void WorkerSlot::excuse_deaths() {
    back_off_.forget();
    if (health_.dies_when_ready()) on_settled();
}

void WorkerSlot::on_settled() {
    if (health_.on_settled()) listener_.on_worker_settled(*this);
}

// A process that was told to end is never at fault: it may end in the middle of anything.
bool WorkerSlot::is_fault(const ProcessEnd& end) const {
    if (shutting_down_ || halted_) return false;
    if (is_killed_for_fault_) return true;
    // The end of a stand-in is not that of its worker, of which it tells.
    if (!settings_.host.empty()) return fatal_ && fatal_->crashed();
    return has_crashed(end);
}

// How it ended and, if anybody knows, why: by its own words, or by ours.
std::string WorkerSlot::end_reason(const ProcessEnd& end) const {
    // The end of a stand-in is not that of its worker, of which it tells.
    if (fatal_ && !settings_.host.empty()) return "ended: " + fatal_->message();
    const std::string how = end.text();
    if (fatal_) return how + ": " + fatal_->message();
    return kill_reason_.empty() ? how : how + ": " + kill_reason_;
}

void WorkerSlot::count_failure(const std::string& why, bool is_permanent, uint64_t num_more) {
    const SlotHealth::Verdict verdict = health_.on_failed(why, is_permanent, num_more);
    if (verdict == SlotHealth::Verdict::kGiveUp) {
        listener_.on_worker_given_up(
            *this,
            is_permanent ? why : fmt::format("{} ({} attempts)", why, health_.num_failures()));
        return;
    }
    start_later();
    if (verdict == SlotHealth::Verdict::kFailing) listener_.on_worker_failing(*this);
}

void WorkerSlot::start_later() {
    if (!settings_.spawn) return;
    const uint64_t delay_ms = back_off_.failed(loop_.now_ms());
    log::info("{} starts again in {} ms", name_, delay_ms);
    restart_due_ms_ = loop_.now_ms() + delay_ms;
    restart_timer_.start(delay_ms);
}

void WorkerSlot::fill_status(client::Worker& status) const {
    status.set_role(role_name(settings_.role));
    status.set_index(settings_.index);
    status.set_heartbeat_age_ms(hang_detector_.silent_ms());
    if (process_ == nullptr) {
        status.set_state(std::string(halted_                      ? kWorkerHalted
                                     : restart_timer_.is_active() ? kWorkerBackOff
                                     : health_.is_hindered()      ? kWorkerNoHost
                                                                  : kWorkerDead));
        return;
    }
    status.set_pid(static_cast<uint32_t>(process_->pid()));
    status.set_uptime_ms(loop_.now_ms() - started_ms_);
    status.set_state(std::string(stop() != control::STOP_NONE ? kWorkerStopped
                                 : state_ == State::kReady    ? kWorkerReady
                                                              : kWorkerStarting));
    for (const control::Link& link : links_.links()) {
        client::Link& shown = *status.add_links();
        shown.set_is_open(link.is_open());
        shown.set_is_near(link.is_near());
        shown.set_latency_ns(link.latency_ns());
        shown.set_bytes_per_s(link.bytes_per_s());
        shown.set_bytes_sent(link.bytes_sent());
        shown.set_bytes_received(link.bytes_received());
    }
}

}  // namespace afd::daemon
