// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/upgrader.h"

#include <unistd.h>

#include <utility>

#include "daemon/program/logging.h"
#include "proto/failure.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

namespace {

// How often the new one hears what is left, if that changes.
constexpr uint64_t kTellMs = 100;

}  // namespace

Upgrader::Upgrader(EventLoop& loop, Surroundings surroundings)
    : loop_(loop),
      surroundings_(std::move(surroundings)),
      gateway_(*surroundings_.gateway),
      remaining_timer_(loop, [this] { tell_remaining(); }),
      rest_timer_(loop, [this] {
          log::warn(
              "upgrade: connections whose last answer nobody reads, or that the new afdd does not "
              "take, are closed");
          end_here();
      }) {}

Result<> Upgrader::begin() {
    AFD_TRY(check_idle());
    AFD_TRY(surroundings_.check_possible());
    if (!surroundings_.config->spawn) {
        return failed_precondition(
            "spawn = false: workers that are started by hand are of this afdd; stop it and start "
            "the new one");
    }
    AFD_ASSIGN(successor_, Successor::start(loop_, start_of_successor(), *this));
    step_ = Step::kStarting;
    is_cancelled_ = false;
    has_departed_ = false;
    began_us_ = schedule::steady_now_us();
    show_pid_in_log(true);
    log::info(
        "upgrade: '{}' starts as pid {}", surroundings_.command_line.front(), successor_->pid());
    return {};
}

Successor::Start Upgrader::start_of_successor() const {
    Successor::Start start;
    start.command_line = surroundings_.command_line;
    start.environment = surroundings_.life->environment();
    start.silence_max_ms = surroundings_.config->start_timeout_ms;
    start.offer.set_instance(surroundings_.config->instance);
    start.offer.set_control_socket(surroundings_.setup->paths().control_socket);
    start.fds.push_back(surroundings_.setup->lock().fd());
    doors().offer(start.offer, start.fds);
    return start;
}

std::string Upgrader::text() const {
    switch (step_) {
        case Step::kNone:
            return "";
        case Step::kStarting:
            return fmt::format("pid {} starts to take the place of this one", successor_->pid());
        case Step::kLeaving:
            return fmt::format("pid {} has taken the place of this one", successor_->pid());
    }
    return "";
}

Result<> Upgrader::check_idle() const {
    if (step_ == Step::kNone) return {};
    return failed_precondition("an upgrade is under way: {}", with(text()));
}

void Upgrader::on_progress(const std::string& text) {
    if (step_ == Step::kStarting) {
        gateway_.tell_change(fmt::format("pid {}: {}", successor_->pid(), text));
    }
}

void Upgrader::leave(const handover::Ready& ready) {
    if (is_cancelled_) return;
    step_ = Step::kLeaving;
    const handover::Remaining remaining = gateway_.remaining();
    log::info("upgrade: pid {} serves, version {}; {} requests end here",
              successor_->pid(),
              ready.version(),
              remaining.num_requests());
    // Before it may go: it says that it is ready as the main process.
    surroundings_.life->give_to(successor_->pid());
    doors().leave({ready.kept().begin(), ready.kept().end()});
    successor_->go();
    client::Response response;
    client::Upgraded& upgraded = *response.mutable_upgraded();
    upgraded.set_pid(static_cast<uint32_t>(successor_->pid()));
    upgraded.set_version(ready.version());
    upgraded.set_old_pid(static_cast<uint32_t>(::getpid()));
    upgraded.set_num_requests(remaining.num_requests());
    upgraded.set_total_us(schedule::steady_now_us() - began_us_);
    gateway_.end_change(response);
    tell_remaining();
    remaining_timer_.start(kTellMs, kTellMs);
    gateway_.leave_to(*successor_);
}

void Upgrader::on_departed() {
    if (step_ != Step::kLeaving || has_left_) return;
    has_departed_ = true;
    tell_remaining();
}

void Upgrader::tell_remaining() {
    const handover::Remaining remaining = gateway_.remaining();
    if (std::string now = remaining.SerializeAsString(); now != told_) {
        told_ = std::move(now);
        successor_->tell(remaining);
    }
    if (has_departed_ && successor_->has_got_all()) {
        end_here();
    } else {
        bound_the_rest(remaining);
    }
}

void Upgrader::bound_the_rest(const handover::Remaining& remaining) {
    const bool is_rest = remaining.num_requests() == 0 && remaining.stream_ids().empty();
    if (!is_rest) {
        rest_timer_.stop();
    } else if (!rest_timer_.is_active()) {
        rest_timer_.start(surroundings_.config->drain_timeout_ms);
    }
}

// Once: to end makes the gateway look again whether all has left, and it has.
void Upgrader::end_here() {
    has_left_ = true;
    remaining_timer_.stop();
    rest_timer_.stop();
    surroundings_.on_left();
}

void Upgrader::on_gone(const std::string& why) {
    const bool was_ending = successor_->is_ending();
    const bool was_leaving = step_ == Step::kLeaving;
    remaining_timer_.stop();
    rest_timer_.stop();
    step_ = Step::kNone;
    successor_.reset();
    show_pid_in_log(false);
    told_.clear();
    if (!was_leaving) {
        fail(is_cancelled_
                 ? unavailable("afdd began to end before the new one served")
                 : unavailable("the new afdd cannot serve: {}; this one serves on", with(why)));
        return;
    }
    gateway_.stay();
    if (has_left_) {
        log::error("upgrade: the new afdd is gone: {}; this one is ending", why);
        return;
    }
    surroundings_.life->take_back();
    if (was_ending) {
        surroundings_.on_ended();
        return;
    }
    log::error("upgrade: the new afdd is gone: {}; this one serves again", why);
    stay();
}

void Upgrader::stay() {
    surroundings_.life->say_ready("serving again: the new afdd is gone");
    if (const Result<> signed_ = surroundings_.setup->lock().sign(); !signed_.ok()) {
        log::warn("{}", signed_.error().message);
    }
    doors().go_on();
}

void Upgrader::fail(const Error& error) {
    log::error("upgrade: {}", error.message);
    gateway_.end_change(error);
}

void Upgrader::cancel() {
    if (step_ != Step::kStarting) return;
    is_cancelled_ = true;
    successor_->kill();
}

}  // namespace afd::daemon
