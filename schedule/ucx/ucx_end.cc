// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_end.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/check.h"
#include "schedule/context/control_view.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::schedule {
namespace {

constexpr uint64_t kHelloAgainUs = 20'000;
constexpr uint64_t kWelcomeUs = 3'000'000;
constexpr uint64_t kPauseUs = 10'000;
constexpr uint64_t kPauseUsMax = 1'000'000;
// A neighbour that had no room for a link through memory may have some later.
constexpr uint64_t kNotNearUs = 10'000'000;
// A peer that says nothing new is told from one that is gone by these.
constexpr uint64_t kSameBeatUs = 100'000;
// Sent at the tick after that.
constexpr uint64_t kNewBeatUs = Endpoint::kMirrorUs - UcxWorker::kTickUs;

}  // namespace

UcxEnd::UcxEnd(const UcxEndConfig& config,
               uint32_t num_peers,
               uint32_t num_micro_batches,
               std::unique_ptr<UcxWorker> worker)
    : config_(config),
      num_micro_batches_(num_micro_batches),
      ringer_(ConstControlView(config.control).armed(), config.doorbell),
      heartbeats_(num_peers),
      links_(num_peers),
      probe_bytes_(is_session() ? std::make_unique<std::byte[]>(UcxLinkMeter::kProbeBytes)
                                : nullptr),
      worker_(std::move(worker)) {}

UcxEnd::~UcxEnd() = default;

void UcxEnd::start(Meaning& meaning) {
    meaning_ = &meaning;
    worker_->start(*this);
}

EndpointMemory UcxEnd::memory() {
    EndpointMemory memory{config_.control, config_.doorbell, {}, this};
    for (const HeartbeatWords& words : heartbeats_) memory.peer_heartbeats.push_back(&words);
    return memory;
}

UcxMessage& UcxEnd::fresh(std::unique_ptr<UcxMessage>& message, size_t payload_bytes) {
    if (message && message->num_in_flight != 0) buried_.push_back(std::move(message));
    if (!message) message = std::make_unique<UcxMessage>();
    if (message->payload_bytes != payload_bytes) {
        message->payload = std::make_unique<std::byte[]>(payload_bytes);
        message->payload_bytes = payload_bytes;
    }
    std::erase_if(buried_, [](const auto& buried) { return buried->num_in_flight == 0; });
    return *message;
}

void UcxEnd::post(uint32_t peer, UcxMessage& message) {
    Link& link = links_[peer];
    UcxHeader& header = message.header;
    header.magic = kUcxMagic;
    header.instance_id = config_.instance_id;
    header.epoch = link.epoch;
    header.connection = link.connection;
    header.session = is_session() ? config_.index : peer;
    header.rank = is_session() ? peer : config_.index;
    if (!link.path) return;
    worker_->send(*link.path, message);
    if (header.kind == UcxKind::kDescriptor || header.kind == UcxKind::kResults ||
        header.kind == UcxKind::kWords || header.kind == UcxKind::kBlock) {
        link.meter.on_sent(sizeof(header) + message.payload_bytes);
    }
}

void UcxEnd::send(uint32_t peer, UcxMessage& message) {
    if (links_[peer].is_open) post(peer, message);
}

void UcxEnd::ring_peers() {
    const UcxWorker::Lock held = lock();
    for (uint32_t peer = 0; peer < links_.size(); ++peer) {
        UcxMessage& message = fresh(links_[peer].ring, 0);
        message.header.kind = UcxKind::kRing;
        send(peer, message);
    }
}

void UcxEnd::renew(uint32_t peer) {
    close(peer);
    worker_->wake();
}

void UcxEnd::fail_connection(uint32_t peer) {
    const UcxWorker::Lock held = lock();
    if (links_[peer].path) UcxWorker::fail(*links_[peer].path);
    worker_->wake();
}

std::vector<LinkView> UcxEnd::links() const {
    const UcxWorker::Lock held = lock();
    std::vector<LinkView> views;
    for (const Link& link : links_) {
        views.push_back(link.meter.view());
        views.back().is_open = link.is_open;
        views.back().is_near = link.is_open && UcxWorker::is_near(*link.path);
    }
    return views;
}

void UcxEnd::set_closed(uint32_t peer) {
    if (!std::exchange(links_[peer].is_open, false)) return;
    meaning_->on_close(peer);
}

void UcxEnd::close(uint32_t peer) {
    set_closed(peer);
    Link& link = links_[peer];
    link.meter.on_closed();
    if (link.path) worker_->close(*link.path);
    link.path.reset();
}

void UcxEnd::on_tick(uint64_t now_us) {
    for (uint32_t peer = 0; peer < links_.size(); ++peer) {
        if (is_session()) {
            keep_connected(peer, now_us);
        } else {
            keep_accepted(peer);
        }
    }
    send_heartbeats(now_us);
    if (is_session()) probe_links();
}

// In turn, so that the lock is free soon, however many peers there are.
void UcxEnd::send_heartbeats(uint64_t now_us) {
    const HeartbeatView view = read_heartbeat(ConstControlView(config_.control).heartbeat_words());
    size_t num_sent = 0;
    for (size_t i = 0; i < links_.size() && num_sent < kBeatsAtOnce; ++i) {
        const uint32_t peer = next_beat_peer_;
        next_beat_peer_ = static_cast<uint32_t>((peer + 1) % links_.size());
        if (!wants_heartbeat(links_[peer], view, now_us)) continue;
        send_heartbeat(peer, view, now_us);
        ++num_sent;
    }
}

// One after the other, so that they do not measure each other.
void UcxEnd::probe_links() {
    const uint64_t now_ns = steady_now_ns();
    if (links_[probed_peer_].meter.is_probing(now_ns)) return;
    for (uint32_t i = 0; i < links_.size(); ++i) {
        probed_peer_ = static_cast<uint32_t>((probed_peer_ + 1) % links_.size());
        Link& link = links_[probed_peer_];
        // Where the last one has not even left, the link takes nothing at present.
        const bool is_leaving = link.probe && link.probe->num_in_flight != 0;
        if (!link.is_open || is_leaving || !link.meter.wants_probe(now_ns)) continue;
        link.meter.on_probe(now_ns);
        if (!link.probe) link.probe = std::make_unique<UcxMessage>();
        link.probe->header.kind = UcxKind::kProbe;
        link.probe->header.offset = now_ns;
        link.probe->borrowed = probe_bytes_.get();
        link.probe->payload_bytes = UcxLinkMeter::kProbeBytes;
        return send(probed_peer_, *link.probe);
    }
}

void UcxEnd::answer_probe(uint32_t peer, uint64_t sent_ns) {
    Link& link = links_[peer];
    // Whoever asks faster than it takes answers gets fewer.
    if (link.answer && link.answer->num_in_flight != 0) return;
    UcxMessage& message = fresh(link.answer, 0);
    message.header.kind = UcxKind::kAnswer;
    message.header.offset = sent_ns;
    send(peer, message);
}

void UcxEnd::keep_accepted(uint32_t peer) {
    Link& link = links_[peer];
    if (link.asked) return accept(peer);
    if (!link.path) return;
    // When the place has another process, the old one says nothing any more from here on.
    const bool is_over = link.epoch < config_.book->epoch(Role::kAttention, peer);
    if (is_over || UcxWorker::has_failed(*link.path)) close(peer);
}

void UcxEnd::keep_connected(uint32_t peer, uint64_t now_us) {
    Link& link = links_[peer];
    const bool is_other = config_.book->epoch(Role::kFfn, peer) != link.peer_epoch;
    const bool is_gone = !link.path || UcxWorker::has_failed(*link.path) || is_other ||
                         (link.is_open && now_us - link.heard_us > kSilentUs) ||
                         (!link.is_open && now_us - link.began_us > kWelcomeUs);
    if (is_gone) {
        // The peer may have no room for it: UCX is tried instead.
        if (link.path && !link.is_open && UcxWorker::is_near(*link.path)) link.not_near_us = now_us;
        close(peer);
        if (now_us >= link.next_try_us || is_other) connect(peer, now_us);
    } else if (!link.is_open && now_us - link.heard_us > kHelloAgainUs) {
        // The rank may not have been told of this process when the last one came.
        link.heard_us = now_us;
        if (link.greeting->num_in_flight == 0) post(peer, *link.greeting);
    }
}

void UcxEnd::connect(uint32_t peer, uint64_t now_us) {
    Link& link = links_[peer];
    const UcxPlace place = config_.book->get(Role::kFfn, peer);
    if (place.address.empty()) return;
    // A new process has no part in how its predecessor failed.
    if (place.epoch != link.peer_epoch) {
        link.pause_us = 0;
        link.not_near_us = 0;
    }
    link.peer_epoch = place.epoch;
    link.pause_us = std::clamp(2 * link.pause_us, kPauseUs, kPauseUsMax);
    link.next_try_us = now_us + link.pause_us;
    const bool may_be_near = link.not_near_us == 0 || now_us - link.not_near_us > kNotNearUs;
    Result<std::shared_ptr<UcxPath>> path = worker_->connect(place.address, may_be_near);
    if (!path.ok()) return;
    link.path = path.value();
    link.epoch = config_.epoch;
    link.connection = ++num_connections_;
    link.began_us = now_us;
    link.heard_us = now_us;
    UcxMessage& hello = fresh(link.greeting, 0);
    hello.header.kind = UcxKind::kHello;
    post(peer, hello);
}

uint32_t UcxEnd::peer_of(const UcxHeader& header) const {
    return is_session() ? header.rank : header.session;
}

void UcxEnd::on_message(const std::shared_ptr<UcxPath>& path,
                        const UcxHeader& header,
                        std::span<const std::byte> payload) {
    const uint32_t peer = peer_of(header);
    const uint32_t own = is_session() ? header.session : header.rank;
    if (header.instance_id != config_.instance_id || own != config_.index ||
        peer >= links_.size()) {
        ++num_bad_;
        return;
    }
    if (!is_session() && header.kind == UcxKind::kHello) return hear_hello(peer, path, header);
    Link& link = links_[peer];
    // R13: on any other connection it is of a process, or of a time, that is over.
    if (path != link.path || header.epoch != link.epoch || header.connection != link.connection) {
        return;
    }
    link.heard_us = steady_now_us();
    bool is_valid = true;
    if (is_session() && header.kind == UcxKind::kWelcome) {
        // One that was sent twice opens no connection that is being given up.
        if (!UcxWorker::has_failed(*path)) read_welcome(peer, payload);
    } else if (header.kind == UcxKind::kHeartbeat) {
        is_valid = store_heartbeat(peer, payload);
    } else if (header.kind == UcxKind::kRing) {
        ringer_.ring();
    } else if (link.is_open) {
        is_valid = take_payload(peer, header, payload);
    }
    if (is_valid) return;
    ++num_bad_;
    set_closed(peer);
    UcxWorker::fail(*link.path);
}

bool UcxEnd::take_payload(uint32_t peer,
                          const UcxHeader& header,
                          std::span<const std::byte> payload) {
    UcxLinkMeter& meter = links_[peer].meter;
    if (header.kind == UcxKind::kProbe && !is_session()) {
        answer_probe(peer, header.offset);
        return true;
    }
    if (header.kind == UcxKind::kAnswer && is_session()) {
        meter.on_answer(header.offset, steady_now_ns());
        return true;
    }
    meter.on_received(sizeof(header) + payload.size());
    return meaning_->on_message(peer, header, payload);
}

// Answered from the next tick: no connection is made in the middle of a callback of UCX.
void UcxEnd::hear_hello(uint32_t peer,
                        const std::shared_ptr<UcxPath>& path,
                        const UcxHeader& header) {
    Link& link = links_[peer];
    // R13: the epoch that afdd named, and nothing older than what there is. An epoch that is not
    // known yet is said again by then.
    if (header.epoch == 0 || header.epoch != config_.book->epoch(Role::kAttention, peer)) return;
    if (header.epoch == link.epoch && header.connection < link.connection) return;
    if (link.asked && header.epoch == link.asked_epoch &&
        header.connection < link.asked_connection) {
        return;
    }
    link.asked = path;
    link.asked_epoch = header.epoch;
    link.asked_connection = header.connection;
    worker_->wake();
}

void UcxEnd::accept(uint32_t peer) {
    Link& link = links_[peer];
    const std::shared_ptr<UcxPath> path = std::exchange(link.asked, nullptr);
    // It may be over by now.
    if (link.asked_epoch != config_.book->epoch(Role::kAttention, peer) ||
        UcxWorker::has_failed(*path)) {
        return;
    }
    if (path == link.path) {
        // Who says hello faster than it takes welcomes gets fewer: one is on its way already.
        if (link.greeting->num_in_flight == 0) welcome(peer);
        return;
    }
    close(peer);
    worker_->adopt(*path);
    link.path = path;
    link.epoch = link.asked_epoch;
    link.connection = link.asked_connection;
    link.is_open = true;
    link.beat_us = 0;
    welcome(peer);
    meaning_->on_open(peer);
    ringer_.ring();
}

void UcxEnd::welcome(uint32_t peer) {
    const size_t num_words = 2 * size_t{num_micro_batches_};
    UcxMessage& message = fresh(links_[peer].greeting, num_words * sizeof(int32_t));
    message.header.kind = UcxKind::kWelcome;
    std::vector<int32_t> words(num_words);
    meaning_->write_welcome(peer, words);
    std::memcpy(message.payload.get(), words.data(), message.payload_bytes);
    post(peer, message);
}

void UcxEnd::read_welcome(uint32_t peer, std::span<const std::byte> payload) {
    Link& link = links_[peer];
    std::vector<int32_t> words(2 * size_t{num_micro_batches_});
    // One that was sent twice says nothing new.
    if (link.is_open || payload.size() != words.size() * sizeof(int32_t)) return;
    std::memcpy(words.data(), payload.data(), payload.size());
    link.is_open = true;
    link.pause_us = 0;
    link.beat_us = 0;
    meaning_->read_welcome(peer, words);
    meaning_->on_open(peer);
    ringer_.ring();
}

bool UcxEnd::store_heartbeat(uint32_t peer, std::span<const std::byte> payload) {
    UcxBeat beat;
    if (payload.size() != sizeof(beat)) return false;
    std::memcpy(&beat, payload.data(), sizeof(beat));
    store_image(beat.image, heartbeats_[peer]);
    links_[peer].meter.on_beat(beat.times, steady_now_ns());
    return true;
}

bool UcxEnd::wants_heartbeat(const Link& link, const HeartbeatView& view, uint64_t now_us) {
    if (!link.is_open) return false;
    if (link.beat_us == 0) return true;
    // What UCX could not send yet is news enough.
    if (link.heartbeat->num_in_flight != 0) return false;
    const bool is_same = view.progress == link.beat.progress && view.pid == link.beat.pid &&
                         view.state == link.beat.state && view.wait == link.beat.wait;
    return now_us - link.beat_us >= (is_same ? kSameBeatUs : kNewBeatUs);
}

void UcxEnd::send_heartbeat(uint32_t peer, const HeartbeatView& view, uint64_t now_us) {
    Link& link = links_[peer];
    const UcxBeat beat{image_of(view), link.meter.beat(steady_now_ns())};
    UcxMessage& message = fresh(link.heartbeat, sizeof(beat));
    message.header.kind = UcxKind::kHeartbeat;
    std::memcpy(message.payload.get(), &beat, sizeof(beat));
    link.beat = view;
    link.beat_us = now_us;
    send(peer, message);
}

}  // namespace afd::schedule
