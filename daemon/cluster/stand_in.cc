// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/stand_in.h"

#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_protocol.h"
#include "daemon/config/wire_choices.h"
#include "daemon/control/first_contact.h"
#include "daemon/control/worker_control.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/metrics_image.h"
#include "daemon/program/logging.h"
#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"
#include "proto/host_name.h"
#include "schedule/context/control_view.h"
#include "schedule/shared_memory/segment_name.h"

namespace afd::daemon {

namespace {

constexpr std::chrono::seconds kHelloTimeout{10};

}  // namespace

StandIn::StandIn(EventLoop& loop,
                 const Options& options,
                 ControlChannel afdd,
                 control::Welcome welcome)
    : loop_(loop),
      role_(options.role),
      index_(options.index),
      afdd_(std::move(afdd)),
      welcome_(std::move(welcome)),
      host_name_(welcome_.host().name()),
      afdd_watcher_(loop, afdd_.fd(), [this](int events) { on_afdd(events); }),
      flush_retry_(loop, [this] { flush_afdd(); }),
      beat_timer_(loop, [this] { beat(); }) {}

Result<std::unique_ptr<StandIn>> StandIn::open(EventLoop& loop, const Options& options) {
    AFD_ASSIGN(UniqueFd socket, connect_to_afdd(options.control_socket));
    ControlChannel afdd(std::move(socket));
    const auto deadline = std::chrono::steady_clock::now() + kHelloTimeout;
    AFD_ASSIGN(control::Welcome welcome, say_hello(afdd, options.role, options.index, deadline));
    std::unique_ptr<StandIn> made(new StandIn(loop, options, std::move(afdd), std::move(welcome)));
    Result<> done = made->map_segments();
    if (done.ok()) done = made->reach_host(options.cluster_directory);
    if (!done.ok()) {
        made->tell_afdd(done.error());
        return done.error();
    }
    return made;
}

// Their sizes are those of afdd's files: what they must be, the worker knows, which has the model.
Result<> StandIn::map_segments() {
    AFD_ASSIGN(const std::vector<UniqueFd> fds, afdd_.take_fds(welcome_.num_fds()));
    const size_t first = fds.size() - static_cast<size_t>(welcome_.segments_size());
    const auto map = [&](schedule::SegmentKind kind) -> Result<schedule::Segment> {
        const std::string wanted =
            schedule::segment_name(welcome_.segment_prefix(), role_of(role_), index_, kind);
        for (int i = 0; i < welcome_.segments_size(); ++i) {
            if (welcome_.segments(i) != wanted) continue;
            const int fd = fds[first + static_cast<size_t>(i)].get();
            struct stat status {};
            if (::fstat(fd, &status) != 0) break;
            return schedule::Segment::attach(fd,
                                             wanted,
                                             static_cast<uint64_t>(status.st_size),
                                             schedule::Segment::Access::kReadWrite);
        }
        return data_loss("the Welcome of afdd brings no segment {}", with(wanted));
    };
    AFD_ASSIGN(control_, map(schedule::SegmentKind::kControl));
    AFD_ASSIGN(metrics_, map(schedule::SegmentKind::kMetrics));
    // As every worker does that begins to count: what the one before has counted is noted already.
    Metrics({metrics_.data(), metrics_.size()}).start();
    return {};
}

Result<> StandIn::reach_host(const std::string& cluster_directory) {
    AFD_ASSIGN(const ClusterIdentity identity,
               ClusterIdentity::load(cluster_directory, std::string(kLeaderName)));
    const auto address = from_bytes(welcome_.host().address());
    // Between the decision to start this process and its Welcome. The next one waits for the host.
    if (!address) return unavailable("the worker's host left before it could be reached");
    AFD_ASSIGN(UniqueFd socket, connect_tcp(*address));
    AFD_ASSIGN(ClusterChannel channel, ClusterChannel::connect(std::move(socket), identity));
    host_ = std::make_unique<ClusterLink>(
        loop_,
        std::move(channel),
        fmt::format("host '{}' at {}", host_name_, listen_address_of(*address).text()),
        [this](const Result<>& outcome) { on_host(outcome); });
    return {};
}

// The host is known, and what afdd says can go to it.
Result<> StandIn::ask_for_worker() {
    if (host_->channel().peer_name() != host_name_) {
        return Error{Code::kPermissionDenied,
                     fmt::format("{}: its certificate is that of host '{}'",
                                 host_->peer(),
                                 host_->channel().peer_name())};
    }
    cluster::StandInMessage message;
    cluster::Take& take = *message.mutable_take();
    take.set_role(role_);
    take.set_index(index_);
    *take.mutable_welcome() = welcome_;
    take.mutable_welcome()->clear_segments();
    take.mutable_welcome()->clear_num_fds();
    take.mutable_welcome()->clear_host();
    host_->send(message);
    has_asked_ = true;
    beat_timer_.start(kBeatMs, kBeatMs);
    // What came right behind the Welcome is read already: no event of the socket tells.
    AFD_TRY(take_from_afdd());
    balance();
    return {};
}

int StandIn::run() {
    if (!is_over_) loop_.run();
    return exit_status_;
}

void StandIn::on_afdd(int events) {
    if ((events & UV_WRITABLE) != 0) flush_afdd();
    if ((events & UV_READABLE) == 0 || is_over_) return;
    const Result<> read = afdd_.read(ControlChannel::kReadBytesPerTurn);
    const Result<> taken = take_from_afdd();
    if (read.ok() && taken.ok()) {
        balance();
        return;
    }
    // Nobody is left to tell.
    if (!is_to_end_) log::error("afdd is gone; this stand-in ends too");
    leave(is_to_end_ ? 0 : kExitAfddGone);
}

Result<> StandIn::take_from_afdd() {
    cluster::StandInMessage message;
    while (true) {
        AFD_ASSIGN(const bool is_complete, afdd_.next(*message.mutable_message()));
        if (!is_complete) return {};
        is_to_end_ = is_to_end_ || message.message().has_shutdown();
        host_->send(message);
    }
}

void StandIn::on_host(const Result<>& outcome) {
    const Result<> taken = take_from_host();
    if (is_over_) return;
    if (!taken.ok()) {
        fail(taken.error());
    } else if (!outcome.ok()) {
        // Asked to end, it may close its connection before it has said that it did.
        is_to_end_ ? leave(0) : fail(outcome.error());
    } else {
        balance();
    }
}

Result<> StandIn::take_from_host() {
    if (!host_->channel().is_established()) return {};
    if (!has_asked_) AFD_TRY(ask_for_worker());
    cluster::WorkerHostMessage message;
    while (!is_over_) {
        AFD_ASSIGN(const bool is_complete, host_->channel().next(message));
        if (!is_complete) break;
        AFD_TRY(take(message));
    }
    flush_afdd();
    return {};
}

Result<> StandIn::take(const cluster::WorkerHostMessage& message) {
    switch (message.body_case()) {
        case cluster::WorkerHostMessage::kMessage:
            has_said_why_ = has_said_why_ || message.message().has_fatal();
            afdd_.queue(message.message());
            return {};
        case cluster::WorkerHostMessage::kSight:
            return store(message.sight());
        case cluster::WorkerHostMessage::kEnded:
            if (is_to_end_) {
                flush_afdd();
                leave(0);
                return {};
            }
            has_crashed_ = message.ended().crashed();
            return unavailable("{}: the worker {}", with(host_->peer(), message.ended().how()));
        case cluster::WorkerHostMessage::kRefusal:
            return Error{static_cast<Code>(message.refusal().code()),
                         host_->peer() + ": " + message.refusal().message()};
        case cluster::WorkerHostMessage::BODY_NOT_SET:
            break;
    }
    return data_loss("{}: it said something unknown", with(host_->peer()));
}

Result<> StandIn::store(const cluster::Sight& sight) {
    schedule::HeartbeatImage image;
    std::span<std::byte> metrics{metrics_.data(), metrics_.size()};
    if (sight.heartbeat().size() != sizeof(image) ||
        (!sight.counts().empty() && !store_metrics_image(sight.counts(), metrics))) {
        return data_loss("{}: what it sees of the worker is malformed", with(host_->peer()));
    }
    std::memcpy(&image, sight.heartbeat().data(), sizeof(image));
    schedule::store_image(image, *schedule::ControlView(control_.data()).heartbeat_words());
    if (sight.stop() == stop_) return {};
    stop_ = sight.stop();
    control::WorkerMessage message;
    message.mutable_stopped()->set_stop(stop_);
    afdd_.queue(message);
    return {};
}

void StandIn::flush_afdd() {
    // The end of afdd shows when it is read.
    const bool is_gone = !afdd_.flush().ok();
    afdd_watcher_.watch(UV_READABLE | (is_gone ? 0 : flush_retry_.after(afdd_)));
    balance();
}

void StandIn::balance() {
    if (is_over_ || !has_asked_) return;
    afdd_.queued_bytes() > kRelayedBytesMax ? host_->pause() : host_->go_on();
    const bool host_is_slow = host_->channel().queued_bytes() > kRelayedBytesMax;
    afdd_watcher_.watch((host_is_slow ? 0 : UV_READABLE) | flush_retry_.after(afdd_));
}

void StandIn::beat() {
    cluster::StandInMessage message;
    message.mutable_beat();
    host_->send(message);
    balance();
}

void StandIn::fail(const Error& error) {
    log::error("{}", error.message);
    tell_afdd(error);
    leave(kExitWorkerFailed);
}

void StandIn::tell_afdd(const Error& why) {
    if (!has_said_why_) {
        control::WorkerMessage message;
        message.mutable_fatal()->set_code(static_cast<uint32_t>(why.code));
        message.mutable_fatal()->set_message(why.message);
        message.mutable_fatal()->set_crashed(has_crashed_);
        afdd_.queue(message);
    }
    static_cast<void>(afdd_.flush().ok());
}

void StandIn::leave(int exit_status) {
    if (is_over_) return;
    is_over_ = true;
    exit_status_ = exit_status;
    loop_.stop();
}

}  // namespace afd::daemon
