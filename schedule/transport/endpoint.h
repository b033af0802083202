// SPDX-License-Identifier: Apache-2.0
#pragma once

// Endpoint: a worker's own end of the transport, whatever its role: its control memory, in which
// it keeps its ScheduleContext, its heartbeat and the word of its doorbell, and what it knows of
// its peers. A colocated worker has no peers, and nothing but this.
//
// Everything that is read here is the worker's own memory. The transport brings the heartbeats of
// the peers into it, and its own heartbeat to them: soon, not at once (within kMirrorUs).
// One data thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/context/context_words.h"
#include "schedule/context/control_view.h"
#include "schedule/context/heartbeat.h"
#include "schedule/wait/doorbell.h"

namespace afd::schedule {

// What a transport finds or makes for its end.
struct EndpointMemory {
    std::byte* control = nullptr;  // As window_layout.h lays out a control segment of the role.
    int doorbell = -1;             // Non-blocking eventfd; rung for what arrives.
    // The last known heartbeat of each peer. Where the transport maps a peer's control memory,
    // this is the original.
    std::vector<const HeartbeatWords*> peer_heartbeats;
    Arrivals* arrivals = nullptr;  // Of a transport that brings in messages; else null.
};

class Endpoint {
  public:
    // A peer's heartbeat is at most so old where it is read, while both sides live; over UCX from a
    // worker with many peers, up to 0.2 s.
    static constexpr uint64_t kMirrorUs = 10'000;

    virtual ~Endpoint() = default;
    Endpoint& operator=(const Endpoint&) = delete;

    // Rank, or session.
    uint32_t index() const { return index_; }
    // The worker's control memory.
    ControlView own_control() const { return control_; }
    // The words of its own ScheduleContext that change.
    ContextWords words() const { return ContextWords(control_.context()); }
    Heartbeat heartbeat() const { return Heartbeat(control_.heartbeat_words()); }
    // What the worker sleeps on; whatever arrives rings it if it is armed (R9).
    Doorbell doorbell() const { return Doorbell(control_.armed(), doorbell_, arrivals_); }

    // What is known of a peer, aged by `now_us`, of one clock that the caller keeps to.
    PeerState peer(uint32_t index, uint64_t now_us);
    // Rings every peer's doorbell: once at the start of a process.
    virtual void ring_peers() = 0;

  protected:
    // The memory outlives the object.
    Endpoint(uint32_t index, const EndpointMemory& memory);
    // For what stands in front of another transport of the same memory.
    Endpoint(const Endpoint&) = default;

  private:
    uint32_t index_;
    ControlView control_;
    int doorbell_;
    Arrivals* arrivals_;
    std::vector<const HeartbeatWords*> peer_heartbeats_;
    std::vector<HeartbeatObserver> observers_;
};

}  // namespace afd::schedule
