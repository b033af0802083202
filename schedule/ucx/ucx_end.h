// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxEnd: what both ends of the transport over UCX have in common: a connection to each peer,
// heartbeats and doorbells over it. What messages mean for windows is with the ends
// (ucx_dispatch.h, ucx_return.h).
//
// The session's end opens connections, numbers them (R13), and opens another when one fails, when
// the rank has been silent for kSilentUs, or when afdd names another process for the rank. A rank's
// end takes a connection of the epoch that afdd named, if it is newer than what it has. Messages of
// any other connection are dropped unread.
//
// Everything here is guarded by the worker's lock.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedule/context/heartbeat.h"
#include "schedule/transport/endpoint.h"
#include "schedule/transport/link_view.h"
#include "schedule/ucx/ucx_address_book.h"
#include "schedule/ucx/ucx_worker.h"
#include "schedule/wait/doorbell.h"

namespace afd::schedule {

// What an end must know. All that is named outlives the end.
struct UcxEndConfig {
    Role role = Role::kFfn;
    uint32_t index = 0;
    uint64_t instance_id = 0;
    uint64_t epoch = 0;  // Of this process, as afdd handed it out.
    UcxAddressBook* book = nullptr;
    std::byte* control = nullptr;
    int doorbell = -1;
};

class UcxEnd final : public UcxReceiver, public Arrivals {
  public:
    // A rank that nothing is heard from for this long is connected to anew.
    // Long enough for a machine that runs ten times as many threads as it has: each reconnection is
    // one more chance for UCX 1.13 to abort.
    static constexpr uint64_t kSilentUs = 3'000'000;
    // Heartbeats of one tick. All peers get theirs within Endpoint::kMirrorUs if there are at most
    // three times as many; a thousand within 0.2 s, far below kSilentUs.
    static constexpr size_t kBeatsAtOnce = 16;

    // What the messages are for. Under the lock.
    class Meaning {
      public:
        virtual ~Meaning() = default;
        // Fills a welcome: a rank's words for this session.
        virtual void write_welcome(uint32_t peer, std::span<int32_t> words) = 0;
        // A session's end has a new connection, and the rank said this.
        virtual void read_welcome(uint32_t peer, std::span<const int32_t> words) = 0;
        // There is a new connection; a session's end has read the welcome.
        virtual void on_open(uint32_t peer) = 0;
        // It is over.
        virtual void on_close(uint32_t peer) = 0;
        // Returns whether the message is what a peer may say; if not, its connection ends.
        virtual bool on_message(uint32_t peer,
                                const UcxHeader& header,
                                std::span<const std::byte> payload) = 0;
    };

    // Makes itself known to nobody: the caller puts worker().address() into the book of all.
    // REQUIRES: `worker` is not started.
    UcxEnd(const UcxEndConfig& config,
           uint32_t num_peers,
           uint32_t num_micro_batches,
           std::unique_ptr<UcxWorker> worker);
    ~UcxEnd() override;

    // From here on messages arrive. stop() before what they are for ends.
    void start(Meaning& meaning);
    void stop() { worker_->stop(); }

    uint32_t index() const { return config_.index; }
    EndpointMemory memory();
    UcxWorker& worker() { return *worker_; }
    UcxWorker::Lock lock() const { return worker_->lock(); }

    bool is_open(uint32_t peer) const { return links_[peer].is_open; }
    // Sends it with the words of the connection. Nothing, while there is none.
    void send(uint32_t peer, UcxMessage& message);
    // Wakes its own data thread, for which something arrived.
    void ring_own() const { ringer_.ring_if_armed(); }
    void ring_peers();
    // Of each peer, as the session's end measures it. Takes the lock.
    std::vector<LinkView> links() const;
    // Takes nothing more from the connection to a peer; another one is opened. Session's end.
    void renew(uint32_t peer);
    // For tests: as if the connection to a peer had broken. Takes the lock.
    void fail_connection(uint32_t peer);
    // For tests: how many messages were dropped as wrong. Takes the lock.
    uint64_t num_bad() const {
        const UcxWorker::Lock held = lock();
        return num_bad_;
    }

    void on_message(const std::shared_ptr<UcxPath>& path,
                    const UcxHeader& header,
                    std::span<const std::byte> payload) override;
    void on_tick(uint64_t now_us) override;
    // On the data thread, while it spins: a wake-up of the thread that receives takes longer than
    // the message.
    void take() override { worker_->try_progress(); }
    void sleep(int eventfd, uint64_t timeout_us) override { worker_->sleep(eventfd, timeout_us); }

  private:
    struct Link {
        std::shared_ptr<UcxPath> path;
        uint64_t epoch = 0;
        uint64_t connection = 0;
        bool is_open = false;
        uint64_t peer_epoch = 0;         // Session's end: of the process connected to.
        uint64_t not_near_us = 0;        // When its link through memory ended before a welcome.
        std::shared_ptr<UcxPath> asked;  // Rank's end: of a hello that is to be answered.
        uint64_t asked_epoch = 0;
        uint64_t asked_connection = 0;
        uint64_t began_us = 0;
        uint64_t next_try_us = 0;
        uint64_t pause_us = 0;
        uint64_t heard_us = 0;
        uint64_t beat_us = 0;  // Of the last heartbeat on this connection; 0: none.
        HeartbeatView beat;
        std::unique_ptr<UcxMessage> greeting;
        std::unique_ptr<UcxMessage> heartbeat;
        std::unique_ptr<UcxMessage> ring;
        std::unique_ptr<UcxMessage> probe;   // Session's end.
        std::unique_ptr<UcxMessage> answer;  // Rank's end: to a probe.
        UcxLinkMeter meter;
    };

    static bool wants_heartbeat(const Link& link, const HeartbeatView& view, uint64_t now_us);
    bool is_session() const { return config_.role == Role::kAttention; }
    Role peer_role() const { return is_session() ? Role::kFfn : Role::kAttention; }
    uint32_t peer_of(const UcxHeader& header) const;
    void set_closed(uint32_t peer);
    void close(uint32_t peer);
    void post(uint32_t peer, UcxMessage& message);
    void keep_connected(uint32_t peer, uint64_t now_us);
    void keep_accepted(uint32_t peer);
    void connect(uint32_t peer, uint64_t now_us);
    void hear_hello(uint32_t peer, const std::shared_ptr<UcxPath>& path, const UcxHeader& header);
    void accept(uint32_t peer);
    void welcome(uint32_t peer);
    void read_welcome(uint32_t peer, std::span<const std::byte> payload);
    bool store_heartbeat(uint32_t peer, std::span<const std::byte> payload);
    void send_heartbeats(uint64_t now_us);
    void send_heartbeat(uint32_t peer, const HeartbeatView& view, uint64_t now_us);
    void probe_links();
    void answer_probe(uint32_t peer, uint64_t sent_ns);
    bool take_payload(uint32_t peer, const UcxHeader& header, std::span<const std::byte> payload);
    UcxMessage& fresh(std::unique_ptr<UcxMessage>& message, size_t payload_bytes);

    UcxEndConfig config_;
    uint32_t num_micro_batches_;
    DoorbellRinger ringer_;
    Meaning* meaning_ = nullptr;
    uint64_t num_connections_ = 0;
    uint64_t num_bad_ = 0;
    std::vector<HeartbeatWords> heartbeats_;
    std::vector<Link> links_;
    uint32_t next_beat_peer_ = 0;
    // Session's end. One probe is on its way at a time: to this peer, or the last one was.
    uint32_t probed_peer_ = 0;
    const std::unique_ptr<std::byte[]> probe_bytes_;  // Of all of them.
    std::vector<std::unique_ptr<UcxMessage>> buried_;
    std::unique_ptr<UcxWorker> worker_;  // Ends before the messages that it sends.
};

}  // namespace afd::schedule
