// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/takeover.h"

#include <utility>

#include "daemon/http/http_form.h"
#include "daemon/program/logging.h"
#include "daemon/program/version.h"

namespace afd::daemon {

namespace {

// Far below any start_timeout_ms that makes sense.
constexpr uint64_t kLifeMs = 500;

}  // namespace

void Takeover::begin(EventLoop& loop,
                     Gateway& gateway,
                     ServiceLife& life,
                     const InstanceLock& lock) {
    gateway_ = &gateway;
    service_life_ = &life;
    lock_ = &lock;
    predecessor_->listen(loop, *this);
    predecessor_->say_progress("workers start");
    sign_timer_ = std::make_unique<Timer>(loop, [this] { predecessor_->say_progress(""); });
    sign_timer_->start(kLifeMs, kLifeMs);
}

std::string Takeover::text() const {
    if (!is_on()) return "";
    if (!serves_) return "this one starts to take the place of another";
    return fmt::format("{} requests and {} connections are still with the afdd before this one",
                       remaining_.num_requests(),
                       remaining_.num_connections());
}

void Takeover::on_ready(Doors& doors) {
    sign_timer_->stop();
    doors_ = &doors;
    // Who connects where only the old one listens must not wait for this one when it does no more.
    predecessor_->drop_doors();
    if (!is_on()) {
        serve();
        return;
    }
    doors.pause();
    predecessor_->say_ready(kVersion, doors.kept_kinds());
}

void Takeover::on_go() {
    if (doors_ != nullptr) serve();
}

void Takeover::serve() {
    if (std::exchange(serves_, true)) return;
    if (const Result<> done = lock_->sign(); !done.ok()) log::warn("{}", done.error().message);
    service_life_->take_over();
    service_life_->say_ready("serving");
    doors_->go_on();
    log::info("clients are served here now");
}

void Takeover::take(HandedConnection connection) {
    if (doors_ != nullptr) doors_->adopt(std::move(connection));
}

void Takeover::take(HandedStream stream) {
    std::shared_ptr<const SessionForm> form;
    if (!stream.form.empty()) {
        auto read = HttpForm::read(stream.form);
        if (!read.ok()) {
            log::warn("a request of {} cannot be resumed: {}", stream.name, read.error().message);
            return;
        }
        form = std::move(read).value();
    }
    gateway_->adopt(stream, std::move(form));
}

void Takeover::on_remaining(const handover::Remaining& remaining) {
    remaining_ = remaining;
    gateway_->set_elsewhere(remaining);
}

void Takeover::on_predecessor_gone(const Error& why) {
    if (why.code == Code::kUnavailable) {
        show_pid_in_log(false);
        log::info("the afdd before this one has ended");
    } else {
        log::error("what the afdd before this one hands over cannot be read: {}", why.message);
    }
    if (doors_ != nullptr) serve();
    gateway_->on_predecessor_gone();
}

void Takeover::say_ending() {
    if (is_on()) predecessor_->say_ending();
}

void Takeover::say_failed(const std::string& message) {
    if (is_on()) predecessor_->say_failed(message);
}

}  // namespace afd::daemon
