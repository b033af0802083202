// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/takeover.h"

#include <algorithm>
#include <utility>

#include "daemon/http/http_form.h"
#include "daemon/http/http_front_end.h"
#include "daemon/program/logging.h"
#include "daemon/program/version.h"

namespace afd::daemon {

namespace {

// Far below any start_timeout_ms that makes sense.
constexpr uint64_t kLifeMs = 500;

}  // namespace

void Takeover::begin(EventLoop& loop,
                     Gateway& gateway,
                     const ServiceNotifier& notifier,
                     const InstanceLock& lock) {
    gateway_ = &gateway;
    notifier_ = &notifier;
    lock_ = &lock;
    predecessor_->listen(loop, *this);
    predecessor_->say_progress("workers start");
    life_ = std::make_unique<Timer>(loop, [this] { predecessor_->say_progress(""); });
    life_->start(kLifeMs, kLifeMs);
}

ListenAddress Takeover::kept_address(const ListenAddress& address) const {
    if (address.port != 0) return address;
    for (const handover::Door& door : predecessor_->offer().doors()) {
        if (door.kind() != kHttpDoor) continue;
        const auto offered = HttpFrontEnd::parse_address(door.address());
        if (offered.ok() && offered.value().host == address.host) return offered.value();
    }
    return address;
}

std::string Takeover::text() const {
    if (!is_on()) return "";
    if (!serves_) return "this one starts to take the place of another";
    return fmt::format("{} requests and {} connections are still with the afdd before this one",
                       remaining_.num_requests(),
                       remaining_.num_connections());
}

void Takeover::on_ready(FrontEnds& front_ends) {
    life_->stop();
    front_ends_ = &front_ends;
    if (!is_on()) {
        serve();
        return;
    }
    std::vector<std::string_view> kept;
    for (const auto& front_end : front_ends) {
        front_end->pause();
        kept.push_back(front_end->kind());
    }
    predecessor_->say_ready(kVersion, kept);
}

void Takeover::on_go() {
    if (front_ends_ != nullptr) serve();
}

void Takeover::serve() {
    if (std::exchange(serves_, true)) return;
    if (const Result<> done = lock_->sign(); !done.ok()) log::warn("{}", done.error().message);
    notifier_->send("READY=1\nSTATUS=serving");
    for (const auto& front_end : *front_ends_) front_end->go_on();
    log::info("clients are served here now");
}

void Takeover::take(HandedConnection connection) {
    if (front_ends_ == nullptr) return;
    const auto door =
        std::find_if(front_ends_->begin(), front_ends_->end(), [&](const auto& front_end) {
            return front_end->kind() == connection.door;
        });
    // A door that the configuration names no longer: its clients see their connections close.
    if (door != front_ends_->end()) (*door)->adopt(std::move(connection));
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

void Takeover::on_predecessor_gone() {
    log::info("the afdd before this one has ended");
    if (front_ends_ != nullptr) serve();
    gateway_->on_predecessor_gone();
}

void Takeover::say_ending() {
    if (is_on()) predecessor_->say_ending();
}

void Takeover::say_failed(const std::string& message) {
    if (is_on()) predecessor_->say_failed(message);
}

}  // namespace afd::daemon
