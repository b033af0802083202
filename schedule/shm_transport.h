// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shared-memory implementations of DispatchTransport and ReturnTransport.
//
// The direction of every segment is enforced by the kernel:
//
//   segment             attention worker of the session   FFN worker of the rank   other side
//   FFN window          read-write (its own stripe)       read-only
//   FFN control         read-only                         read-write
//   attention window    read-only                         read-write (every rank)
//   attention control   read-write                        read-only
//
// attach() maps the segments by name; the constructors take addresses, so that tests can run all
// roles as threads over one mapping, where a thread sanitizer sees them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/status.h"
#include "schedule/control_view.h"
#include "schedule/doorbell.h"
#include "schedule/segment.h"
#include "schedule/transport.h"
#include "schedule/window_layout.h"

namespace afd::schedule {

// What a worker must know to attach: all of it comes with afdd's Welcome and the model.
struct AttachConfig {
    std::string prefix;
    WindowLayout layout;
    InstanceIdentity identity;
    // Own doorbell, and one per peer in the order of their indices. Not owned; must outlive the
    // transport. Non-blocking eventfds.
    int own_doorbell = -1;
    std::vector<int> peer_doorbells;
};

// A peer's memory, or the stripes of it that concern us.
struct FfnRankMemory {
    std::byte* window = nullptr;
    const std::byte* control = nullptr;
};
struct SessionMemory {
    std::byte* window = nullptr;
    const std::byte* control = nullptr;
};

class ShmDispatchTransport final : public DispatchTransport {
  public:
    // Maps own and all FFN segments, compares every header, prefaults the session's stripes.
    // Errors: those of Segment::attach, Segment::prefault and check(); kInvalidArgument for a
    // session outside the geometry or a wrong number of doorbells.
    static Result<std::unique_ptr<ShmDispatchTransport>> attach(const AttachConfig& config,
                                                                uint32_t session);

    // Over memory that the caller keeps mapped. REQUIRES: one entry of `ranks` and of
    // `rank_doorbells` per FFN worker.
    ShmDispatchTransport(const WindowLayout& layout,
                         uint32_t session,
                         const std::byte* own_window,
                         std::byte* own_control,
                         std::vector<FfnRankMemory> ranks,
                         int own_doorbell,
                         const std::vector<int>& rank_doorbells);

    ControlView own_control() const { return control_; }
    Heartbeat heartbeat() const { return Heartbeat(control_.heartbeat_words()); }
    Doorbell doorbell() const { return Doorbell(control_.armed(), own_doorbell_); }
    uint32_t session() const { return session_; }
    // The doorbells of all ranks.
    const std::vector<DoorbellRinger>& ringers() const { return ringers_; }

    void put_row(uint32_t rank,
                 uint32_t micro_batch,
                 uint32_t token_idx,
                 uint32_t k,
                 std::span<const std::byte> row) override;
    void publish(uint32_t rank,
                 uint32_t micro_batch,
                 int32_t layer_id,
                 std::span<const int32_t> ids,
                 int32_t round) override;
    int32_t descriptor_flag(uint32_t rank, uint32_t micro_batch) const override;
    int32_t acknowledged(uint32_t rank, uint32_t micro_batch, Order order) const override;
    const int32_t* result_flags(uint32_t micro_batch) const override;
    std::span<const std::byte> result_row(uint32_t micro_batch,
                                          uint32_t token_idx,
                                          uint32_t k) const override;
    PeerState peer(uint32_t rank, uint64_t now_us) override;
    void ring_peers() override;

  private:
    int32_t* descriptor(uint32_t rank, uint32_t micro_batch) const;

    WindowLayout layout_;
    uint32_t session_;
    const std::byte* window_;
    ControlView control_;
    std::vector<FfnRankMemory> ranks_;
    int own_doorbell_;
    std::vector<DoorbellRinger> ringers_;
    std::vector<HeartbeatObserver> observers_;
    std::vector<Segment> segments_;
};

class ShmReturnTransport final : public ReturnTransport {
  public:
    // Maps own and all attention segments, compares every header, prefaults all of them.
    // Errors: as ShmDispatchTransport::attach.
    static Result<std::unique_ptr<ShmReturnTransport>> attach(const AttachConfig& config,
                                                              uint32_t rank);

    // Over memory that the caller keeps mapped. REQUIRES: one entry of `sessions` and of
    // `session_doorbells` per session.
    ShmReturnTransport(const WindowLayout& layout,
                       uint32_t rank,
                       const std::byte* own_window,
                       std::byte* own_control,
                       std::vector<SessionMemory> sessions,
                       int own_doorbell,
                       const std::vector<int>& session_doorbells);

    ControlView own_control() const { return control_; }
    Heartbeat heartbeat() const { return Heartbeat(control_.heartbeat_words()); }
    Doorbell doorbell() const { return Doorbell(control_.armed(), own_doorbell_); }
    uint32_t rank() const { return rank_; }
    // The doorbells of all sessions.
    const std::vector<DoorbellRinger>& ringers() const { return ringers_; }
    // Base of the own FFN window, for FfnWorkerBatching: ffn.token_*_buf count from here.
    const std::byte* own_window() const { return window_; }

    DescriptorFlags descriptor_flags() const override;
    int32_t acknowledged(uint32_t session, uint32_t micro_batch) const override;
    int32_t layer_id(uint32_t session, uint32_t micro_batch) const override;
    void copy_ids(uint32_t session, uint32_t micro_batch, std::span<int32_t> ids) const override;
    const std::byte* token_row(uint32_t session,
                               uint32_t micro_batch,
                               uint32_t token_idx,
                               uint32_t k) const override;
    void put_result(uint32_t session,
                    uint32_t micro_batch,
                    uint32_t token_idx,
                    uint32_t k,
                    std::span<const std::byte> row,
                    int32_t round) override;
    void put_refusal(uint32_t session,
                     uint32_t micro_batch,
                     uint32_t token_idx,
                     uint32_t k,
                     int32_t round) override;
    void acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) override;
    PeerState peer(uint32_t session, uint64_t now_us) override;
    void ring_peers() override;

  private:
    const int32_t* descriptor(uint32_t session, uint32_t micro_batch) const;
    int32_t* result_flag(uint32_t session, uint32_t micro_batch, uint32_t token_idx, uint32_t k);

    WindowLayout layout_;
    uint32_t rank_;
    const std::byte* window_;
    ControlView control_;
    std::vector<SessionMemory> sessions_;
    int own_doorbell_;
    std::vector<DoorbellRinger> ringers_;
    std::vector<HeartbeatObserver> observers_;
    std::vector<Segment> segments_;
};

}  // namespace afd::schedule
