// SPDX-License-Identifier: Apache-2.0
#pragma once

// Heartbeat: what a worker's data thread is doing, for its peers and afdd (R7, R8).
//
// The data thread advances `progress` once per block of work, so a hung data thread shows even
// while the control thread is well. Nothing here carries a time: an observer measures the age of
// a heartbeat by its own clock, as the time since it last saw progress change. Silence alone
// proves nothing about death; it makes afdd kill and reap (R8).
//
// Ordering: `sequence` is odd while state and wait are written. Every store after the first is a
// release and every load an acquire, so a reader that saw a word of a newer description also sees
// that the sequence moved, and tries again.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

enum class WorkerState : int32_t { kStarting = 0, kIdle = 1, kComputing = 2, kWaiting = 3 };
std::string_view worker_state_name(WorkerState state);

enum class WaitKind : int32_t {
    kNone = 0,
    kResults = 1,       // An attention worker for result flags of a round.
    kAcknowledged = 2,  // An attention worker for acknowledgements, before it may store (R4).
    kTakeover = 3,      // A new attention worker for its predecessor's rounds (R10).
    kDispatch = 4,      // An FFN worker for the other sessions' descriptors (policies).
    kGrant = 5,         // An attention worker for the memory of a two-phase round.
};

// One wait: for whom, and for which word.
struct WaitInfo {
    WaitKind kind = WaitKind::kNone;
    int32_t peer = 0;         // FFN rank, or session for kDispatch.
    int32_t micro_batch = 0;  // -1: a two-phase round; its flags of kResults count blocks.
    int32_t layer_id = 0;
    int32_t flag_seen = 0;
    int32_t flag_expected = 0;

    friend bool operator==(const WaitInfo&, const WaitInfo&) = default;
};

// The bytes in the control segment: one line.
struct alignas(kLineBytes) HeartbeatWords {
    uint64_t progress;
    int32_t sequence;
    int32_t pid;
    int32_t state;
    std::array<int32_t, 6> wait;  // WaitInfo in declaration order.
    std::array<uint8_t, kLineBytes - 44> reserve;
};
static_assert(sizeof(HeartbeatWords) == kLineBytes, "one writer, one line");
static_assert(offsetof(HeartbeatWords, reserve) == 44);

// The writer: the data thread of the worker that owns the segment.
class Heartbeat {
  public:
    Heartbeat() = default;
    explicit Heartbeat(HeartbeatWords* words) : words_(words) {}

    // At attach: the process that writes from now on; state kStarting, no wait.
    void start(int32_t pid);
    // One block of work done, or one turn of a wait: call it at least every few milliseconds.
    void beat();
    void set_idle() { describe(WorkerState::kIdle, {}); }
    void set_computing() { describe(WorkerState::kComputing, {}); }
    void set_waiting(const WaitInfo& wait) { describe(WorkerState::kWaiting, wait); }

  private:
    void describe(WorkerState state, const WaitInfo& wait);

    HeartbeatWords* words_ = nullptr;
    WorkerState state_ = WorkerState::kStarting;
    WaitInfo wait_;
};

// A private copy of a worker's heartbeat.
struct HeartbeatView {
    uint64_t progress = 0;
    int32_t pid = 0;  // 0: never started.
    WorkerState state = WorkerState::kStarting;
    WaitInfo wait;
};

// Reads another process's heartbeat. Values are validated: an unknown state reads as kStarting.
HeartbeatView read_heartbeat(const HeartbeatWords& words);

// A HeartbeatView in fixed bytes, for whoever has no memory in common with the worker.
struct HeartbeatImage {
    uint64_t progress = 0;
    int32_t pid = 0;
    int32_t state = 0;
    std::array<int32_t, 6> wait{};  // WaitInfo in declaration order.
};
static_assert(sizeof(HeartbeatImage) == 40, "no padding: it travels as bytes");

HeartbeatImage image_of(const HeartbeatView& view);
// Stores an image, whatever it holds, in words that read_heartbeat() then reads. REQUIRES: nobody
// else writes them.
void store_image(const HeartbeatImage& image, HeartbeatWords& words);

// Ages a heartbeat by the observer's own clock.
class HeartbeatObserver {
  public:
    // Looks at the heartbeat at time `now_us` (steady).
    // Returns how long ago progress was last seen to change; 0 at the first look, and when the
    // pid changed.
    uint64_t observe(const HeartbeatView& view, uint64_t now_us);

  private:
    uint64_t progress_ = 0;
    int32_t pid_ = 0;
    uint64_t changed_us_ = 0;
    bool seen_ = false;
};

// What a worker knows of a peer.
struct PeerState {
    HeartbeatView heartbeat;
    uint64_t heartbeat_age_us = 0;
};

// The one line of R7, in two parts. Who (role, index, pid) waits for whom, micro-batch, layer, flag
// seen and expected;
std::string describe_wait(
    Role role, uint32_t index, int32_t pid, const WaitInfo& wait, const PeerState& peer);
// and what the peer was last seen to do. A dead one is seen to do what it did last: that it is dead
// is for its supervisor to say.
std::string describe_peer(const PeerState& peer);

}  // namespace afd::schedule
