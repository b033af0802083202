// SPDX-License-Identifier: Apache-2.0
#include "daemon/joined_host/leader_tie.h"

#include <algorithm>
#include <utility>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/program/logging.h"
#include "proto/failure.h"
#include "proto/host_name.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kFirstPauseMs = 1000;
constexpr uint64_t kLongestPauseMs = 30'000;
// A reason that stays the same.
constexpr uint64_t kSayAgainMs = 30'000;

}  // namespace

Result<std::unique_ptr<LeaderTie>> LeaderTie::make(EventLoop& loop,
                                                   const Config& config,
                                                   ClusterIdentity& identity,
                                                   LeaderListener& listener) {
    AFD_ASSIGN(JoinAddress address, parse_join_address(config.join));
    return std::unique_ptr<LeaderTie>(
        new LeaderTie(loop, config, std::move(address), identity, listener));
}

LeaderTie::LeaderTie(EventLoop& loop,
                     const Config& config,
                     JoinAddress address,
                     ClusterIdentity& identity,
                     LeaderListener& listener)
    : loop_(loop),
      config_(config),
      identity_(identity),
      listener_(listener),
      leader_name_("leader at " + config.join),
      connector_(loop,
                 std::move(address),
                 [this](Result<UniqueFd> socket) { on_connecting(std::move(socket)); }),
      retry_timer_(loop, [this] { connector_.start(); }),
      beat_timer_(loop, [this] { beat(); }) {
    beat_timer_.start(kBeatMs, kBeatMs);
}

void LeaderTie::stop() {
    is_stopped_ = true;
    retry_timer_.stop();
    connector_.stop();
    if (is_joined()) {
        cluster::HostMessage message;
        message.mutable_leave();
        leader_->send(message);
    }
    leader_.reset();
}

void LeaderTie::hurry() {
    if (!retry_timer_.is_active()) return;
    pause_ms_ = 0;
    retry_timer_.start(0);
}

void LeaderTie::on_connecting(Result<UniqueFd> socket) {
    const Result<> begun = socket.ok() ? greet(std::move(socket).value()) : socket.error();
    if (!begun.ok()) try_again(begun.error());
}

// Those of before may still do.
void LeaderTie::renew_identity() {
    const Result<> renewed = identity_.renew();
    const std::string failure = renewed.ok() ? "" : renewed.error().message;
    if (!failure.empty() && failure != last_renewal_failure_) {
        log::warn("the certificates of before stay in use: {}", failure);
    }
    last_renewal_failure_ = failure;
}

Result<> LeaderTie::greet(UniqueFd socket) {
    renew_identity();
    AFD_ASSIGN(ClusterChannel channel, ClusterChannel::connect(std::move(socket), identity_));
    has_said_join_ = false;
    has_joined_ = false;
    leader_ = std::make_unique<ClusterLink>(
        loop_, std::move(channel), leader_name_, [this](const Result<>& outcome) {
            on_leader(outcome);
        });
    return {};
}

void LeaderTie::on_leader(const Result<>& outcome) {
    const Result<> taken = take_from_leader();
    if (leader_ == nullptr || (taken.ok() && outcome.ok())) return;
    const Error why = taken.ok() ? outcome.error() : taken.error();
    leader_.reset();
    listener_.on_leader_lost();
    if (is_stopped_) return;
    if (!taken.ok() && why.code != Code::kUnavailable) {
        listener_.on_leader_refuses(why);
        return;
    }
    try_again(why);
}

void LeaderTie::try_again(const Error& why) {
    const bool is_refused = why.code == Code::kPermissionDenied;
    pause_ms_ =
        is_refused ? std::clamp(2 * pause_ms_, kFirstPauseMs, kLongestPauseMs) : kFirstPauseMs;
    retry_timer_.start(pause_ms_);
    const uint64_t now_ms = loop_.now_ms();
    if (why.message == last_failure_ && now_ms - failure_said_ms_ < kSayAgainMs) return;
    last_failure_ = why.message;
    failure_said_ms_ = now_ms;
    log::warn("{}; trying again", why.message);
    listener_.on_leader_missing(why.message);
}

// Errors: kUnavailable; else what no further attempt mends.
Result<> LeaderTie::take_from_leader() {
    if (!leader_->channel().is_established()) return {};
    if (!has_said_join_) AFD_TRY(say_join());
    cluster::LeaderMessage message;
    while (true) {
        AFD_ASSIGN(const bool is_complete, leader_->channel().next(message));
        if (!is_complete) return {};
        if (message.has_refusal()) {
            return Error{static_cast<Code>(message.refusal().code()),
                         leader_name_ + " refuses this host: " + message.refusal().message()};
        }
        if (message.has_over() && config_.leave_with_leader) {
            listener_.on_leader_over();
            return {};
        }
        if (message.has_joined()) {
            AFD_TRY(listener_.on_joined(*leader_, message.joined()));
            has_joined_ = true;
            last_failure_.clear();
        }
    }
}

Result<> LeaderTie::say_join() {
    if (leader_->channel().peer_name() != kLeaderName) {
        return permission_denied("{}: its certificate is that of '{}', which leads nobody",
                                 with(leader_name_, leader_->channel().peer_name()));
    }
    cluster::HostMessage message;
    AFD_ASSIGN(*message.mutable_join(), listener_.join_over(*leader_));
    has_said_join_ = true;
    leader_->send(message);
    return {};
}

void LeaderTie::beat() {
    if (leader_ == nullptr || !has_said_join_) return;
    cluster::HostMessage message;
    message.mutable_beat();
    leader_->send(message);
}

}  // namespace afd::daemon
