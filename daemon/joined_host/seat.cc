// SPDX-License-Identifier: Apache-2.0
#include "daemon/joined_host/seat.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/config/worker_name.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/metrics_image.h"
#include "daemon/program/logging.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kSightMs = 20;
constexpr uint64_t kCountsMs = 250;
// A look at whether the process is stopped costs system calls.
constexpr uint64_t kStopMs = 250;

bool is_same(const schedule::HeartbeatView& one, const schedule::HeartbeatView& other) {
    return one.progress == other.progress && one.pid == other.pid && one.state == other.state &&
           one.wait == other.wait;
}

}  // namespace

Seat::Seat(EventLoop& loop, Settings settings)
    : loop_(loop),
      settings_(std::move(settings)),
      name_(worker_name(settings_.role, settings_.index)),
      doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      flush_retry_(loop,
                   [this] {
                       if (channel_ != nullptr) flush_worker();
                   }),
      look_timer_(loop, [this] { look(); }) {}

Result<std::unique_ptr<Seat>> Seat::make(EventLoop& loop, Settings settings) {
    std::unique_ptr<Seat> seat(new Seat(loop, std::move(settings)));
    if (!seat->doorbell_.valid()) {
        return resource_exhausted("cannot create a doorbell: {}; raise the limit of open files",
                                  with(std::strerror(errno)));
    }
    return seat;
}

void Seat::take(std::unique_ptr<ClusterLink> link, control::Welcome welcome) {
    link_ = std::move(link);
    link_->set_on_read([this](const Result<>& outcome) { on_link(outcome); });
    welcome_ = std::move(welcome);
    waiting_.clear();
    has_next_ = process_ != nullptr;
    if (has_next_) {
        log::info("{}: asked for anew; its process ends first", name_);
        process_->kill();
    } else {
        begin();
    }
    // What came right behind the Take is read already: no event of the socket tells.
    if (link_ != nullptr) on_link({});
}

void Seat::begin() {
    if (const Result<> started = start(); !started.ok()) refuse(started.error());
}

Result<> Seat::start() {
    AFD_TRY(settings_.localise(welcome_));
    AFD_TRY(prepare_segments());
    // What the process before has counted was told at its end: said again before this one counts,
    // it would be added twice.
    Metrics(segments_->metrics()).start();
    AFD_ASSIGN(process_,
               WorkerProcess::spawn(
                   loop_, settings_.executable, settings_.arguments, [this](const ProcessEnd& end) {
                       on_gone(end);
                   }));
    is_ending_ = false;
    seen_ = {};
    said_ms_ = 0;
    counted_ms_ = 0;
    stop_ = control::STOP_NONE;
    look_timer_.start(kSightMs, kSightMs);
    log::info("{} started with pid {}", name_, process_->pid());
    return {};
}

Result<> Seat::prepare_segments() {
    if (segments_ && instance_id_ == welcome_.instance_id()) {
        segments_->restore_header();
        segments_->restore_context();
        // The leader tells the process to end over its stand-in; a 0 is not afdd's.
        segments_->words().set_run_flag(true);
        return {};
    }
    segments_.reset();
    AFD_ASSIGN(schedule::WorkerSegments segments, settings_.create_segments(welcome_));
    segments_.emplace(std::move(segments));
    instance_id_ = welcome_.instance_id();
    return {};
}

Result<> Seat::admit(ControlChannel& channel) {
    if (channel_ != nullptr) {
        return already_exists("{} is connected already", with(name_));
    }
    // What waits is for its successor.
    if (has_next_) return failed_precondition("{}: it is asked for anew", with(name_));
    channel_ = std::make_unique<ControlChannel>(std::move(channel));
    is_cut_off_ = false;
    watcher_ = std::make_unique<FdWatcher>(
        loop_, channel_->fd(), [this](int events) { on_worker(events); });
    schedule::WorkerSegments::Handles handles = settings_.shared_segments(welcome_);
    segments_->add_own(handles);
    control::SupervisorMessage answer;
    control::Welcome& welcome = *answer.mutable_welcome();
    welcome = welcome_;
    // Peers are on other hosts, or as far away: their doorbells are rung by messages.
    std::vector<int> fds = {doorbell_.get()};
    for (const auto& [name, fd] : handles) {
        welcome.add_segments(name);
        fds.push_back(fd);
    }
    welcome.set_num_fds(static_cast<uint32_t>(fds.size()));
    channel_->queue(answer, fds);
    for (const control::SupervisorMessage& message : waiting_) channel_->queue(message);
    waiting_.clear();
    flush_worker();
    return {};
}

void Seat::on_link(const Result<>& outcome) {
    const Result<> taken = take_from_link();
    if (taken.ok() && outcome.ok()) {
        balance();
        return;
    }
    const std::string& why = taken.ok() ? outcome.error().message : taken.error().message;
    if (process_ == nullptr) {
        log::debug("{}: {}", name_, why);  // It has heard of the worker's end.
    } else {
        log::warn("{}: {}; its worker ends", name_, why);
    }
    link_.reset();
    has_next_ = false;
    if (process_ != nullptr) process_->kill();
}

Result<> Seat::take_from_link() {
    cluster::StandInMessage message;
    while (true) {
        AFD_ASSIGN(const bool is_complete, link_->channel().next(message));
        if (!is_complete) return {};
        if (message.has_message()) {
            pass_on(message.message());
        } else if (!message.has_beat()) {
            return data_loss("{}: it said something else than messages for the worker",
                             with(link_->peer()));
        }
    }
}

void Seat::pass_on(const control::SupervisorMessage& message) {
    if (message.has_shutdown()) is_ending_ = true;
    if (channel_ != nullptr && !has_next_) {
        channel_->queue(message);
        flush_worker();
        return;
    }
    waiting_.push_back(message);
    // Who has not said Hello cannot be told.
    if (message.has_shutdown() && process_ != nullptr) process_->kill();
}

void Seat::on_worker(int events) {
    if ((events & UV_WRITABLE) != 0) flush_worker();
    if ((events & UV_READABLE) == 0) return;
    const Result<> read = channel_->read(ControlChannel::kReadBytesPerTurn);
    const Result<> taken = take_from_worker();
    if (read.ok() && taken.ok()) {
        balance();
        return;
    }
    is_cut_off_ = true;
    watcher_->watch(0);
    const Result<>& bad = taken.ok() ? read : taken;
    const bool is_broken = !taken.ok() || read.error().code == Code::kDataLoss;
    if (is_broken) log::error("{}: {}", name_, bad.error().message);
    if (process_ == nullptr) return;
    // Usually one without a connection is ending, and its end is about to be seen.
    if (is_broken) {
        process_->kill();
    } else if (!is_ending_) {
        process_->end_disconnected();
    }
}

Result<> Seat::take_from_worker() {
    cluster::WorkerHostMessage message;
    while (true) {
        AFD_ASSIGN(const bool is_complete, channel_->next(*message.mutable_message()));
        if (!is_complete) return {};
        // Of a process that is to end, the next one's Welcome is here.
        if (has_next_) continue;
        if (message.message().has_ready()) settings_.on_ready(welcome_);
        if (link_ != nullptr) link_->send(message);
    }
}

void Seat::flush_worker() {
    if (is_cut_off_) return;
    // Its end shows when it is read.
    const bool is_gone = !channel_->flush().ok();
    watcher_->watch(UV_READABLE | (is_gone ? 0 : flush_retry_.after(*channel_)));
    balance();
}

void Seat::balance() {
    if (link_ == nullptr || channel_ == nullptr) return;
    channel_->queued_bytes() > kRelayedBytesMax ? link_->pause() : link_->go_on();
    if (is_cut_off_) return;
    const bool link_is_slow = link_->channel().queued_bytes() > kRelayedBytesMax;
    watcher_->watch((link_is_slow ? 0 : UV_READABLE) | flush_retry_.after(*channel_));
}

// What the leader is to see of the worker, and that this host is there.
void Seat::look() {
    if (link_ == nullptr || has_next_ || link_->channel().queued_bytes() > kRelayedBytesMax) return;
    const uint64_t now_ms = loop_.now_ms();
    const auto view = schedule::read_heartbeat(segments_->control().heartbeat_words());
    control::Stop stop = stop_;
    if (now_ms - stop_seen_ms_ >= kStopMs) {
        stop = stop_of_process(process_->pid());
        stop_seen_ms_ = now_ms;
    }
    if (is_same(view, seen_) && stop == stop_ && now_ms - said_ms_ < kBeatMs) return;
    seen_ = view;
    stop_ = stop;
    said_ms_ = now_ms;
    const bool has_counts = now_ms - counted_ms_ >= kCountsMs;
    if (has_counts) counted_ms_ = now_ms;
    link_->send(sight(view, has_counts));
}

cluster::WorkerHostMessage Seat::sight(const schedule::HeartbeatView& view, bool has_counts) const {
    cluster::WorkerHostMessage message;
    const schedule::HeartbeatImage image = schedule::image_of(view);
    message.mutable_sight()->set_heartbeat(&image, sizeof(image));
    message.mutable_sight()->set_stop(stop_);
    if (has_counts) message.mutable_sight()->set_counts(metrics_image(segments_->metrics()));
    return message;
}

void Seat::on_gone(const ProcessEnd& end) {
    const std::unique_ptr<WorkerProcess> gone = std::move(process_);
    // What it sent before its end still counts.
    if (channel_ != nullptr) {
        static_cast<void>(channel_->read().ok());
        static_cast<void>(take_from_worker().ok());
    }
    watcher_.reset();
    channel_.reset();
    look_timer_.stop();
    log::info("{} (pid {}) {}", name_, gone->pid(), end.text());
    settings_.on_gone();
    if (std::exchange(has_next_, false)) {
        begin();
        return;
    }
    if (link_ != nullptr) {
        // What it has counted since the last look.
        link_->send(sight(schedule::read_heartbeat(segments_->control().heartbeat_words()), true));
        cluster::WorkerHostMessage message;
        message.mutable_ended()->set_how(end.text());
        message.mutable_ended()->set_crashed(!is_ending_ && has_crashed(end));
        link_->send(message);
    }
}

// The stand-in leaves when it has read it.
void Seat::refuse(const Error& why) {
    log::error("{}: {}", name_, why.message);
    if (link_ == nullptr) return;
    cluster::WorkerHostMessage message;
    message.mutable_refusal()->set_code(static_cast<uint32_t>(why.code));
    message.mutable_refusal()->set_message(why.message);
    link_->send(message);
}

void Seat::shut_down(bool at_once) {
    is_ending_ = true;
    has_next_ = false;
    if (process_ == nullptr) return;
    if (at_once || channel_ == nullptr) {
        process_->kill();
        return;
    }
    control::SupervisorMessage message;
    message.mutable_shutdown();
    channel_->queue(message);
    flush_worker();
}

}  // namespace afd::daemon
