// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertLane: the way of one micro-batch to the experts and back, and all that the attention loop
// knows of it. Whether the experts are behind windows, behind a two-phase dispatch or in this
// process, only the lane knows.
//
//   is_free() -> start() -> advance()... -> ready() -> finish()
//      ^            '---------------------> cancel()      |
//      +--------------------------------------------------+
//
// Who calls: the data thread of the attention worker, one layer call at a time. No function waits
// for a peer. In the steady state nothing allocates and nothing makes a system call, except in
// lanes that say so.
//
// Order: is_answered(order) reads every shared word that can make is_free(), can_advance() or
// ready() true, with that order: kAcquire while the loop spins, kSeqCst between arming its doorbell
// and sleeping (R9; the partner is whoever stores the word and then looks whether the bell is
// armed). The other functions read with acquire, so rows that they found complete may be read.
//
// How to add a lane: docs/adding/lane.md.

#include <cstdint>
#include <optional>

#include "daemon/control/worker_events.h"
#include "ops/fused_moe/activations.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"
#include "schedule/context/heartbeat.h"
#include "schedule/wait/flag.h"

namespace afd::daemon {

// Which rows a lane takes.
enum class LaneRows {
    kAny,  // Decoding rows and chunks of prompts. What fails in finish() ends its requests.
    // Prompts above the threshold, as a whole. What fails in finish() goes back, and through the
    // lanes that take any rows.
    kLongPrompts,
};

struct LaneTraits {
    LaneRows rows = LaneRows::kAny;
    uint32_t rows_max = 0;   // Of one call.
    bool has_peers = false;  // Other processes compute: between start() and finish() is a wait.
    bool routes = false;  // Rows are routed on their way (router = ffn): start() gets no ids of MoE
                          // layers but those that look experts up by token id.
};

// A wait for a peer: for what, and what the peer was last seen to do.
struct LaneWait {
    schedule::WaitInfo info;
    schedule::PeerState peer;
};

// What a lane has published to a rank.
struct LaneRound {
    uint32_t rank = 0;
    int32_t round = 0;
};

class ExpertLane {
  public:
    explicit ExpertLane(const LaneTraits& traits) : traits_(traits) {}
    virtual ~ExpertLane() = default;
    ExpertLane(const ExpertLane&) = delete;
    ExpertLane& operator=(const ExpertLane&) = delete;

    const LaneTraits& traits() const { return traits_; }

    // --- a call ---

    // Whether start() may be called. Once true it stays so until start().
    virtual bool is_free() = 0;

    // Sends the rows of one layer. What `input` points to stays unchanged, and `out` [num_tokens,
    // hidden] belongs to the lane, until finish() or cancel().
    // REQUIRES: is_free(); at most rows_max tokens. On an error no call is open.
    virtual Result<> start(const ops::MoeInput& input, ops::Rows<ops::Bf16> out) = 0;

    // Whether advance() has something to do: a block to send or to combine, the next tile of the
    // shared experts.
    virtual bool can_advance() const = 0;
    // Does one step of it: what may take the time of a micro-batch's attention, not more.
    // REQUIRES: can_advance(). After an error the caller cancels.
    virtual Result<> advance() = 0;

    // Whether finish() will find a result, or an error, without waiting. REQUIRES: a call is open.
    virtual bool ready() const = 0;

    // Writes the weighted sums to start()'s `out`, and ends the call, also on an error.
    // REQUIRES: ready(). Errors: kUnavailable: a peer refused the rows (R11). kDataLoss: a peer
    // acknowledged them without results. kResourceExhausted: a peer had no memory for them.
    virtual Result<> finish() = 0;

    // Nobody wants the result any more: ends the call, if one is open. The lane may stay blocked
    // until the peers have acknowledged (R4): cancelling cuts nothing short.
    virtual void cancel() = 0;

    // --- without a lost rank (R12); a lane whose experts have no replicas does nothing here ---

    // Lets go of rounds at ranks without a process where nobody has to be asked: over a transport
    // that can fence them off (R16). Returns whether there was any.
    virtual bool fence_lost_ranks() { return false; }
    // A round at a rank without a process that nobody has let go of, nor asked about: the loop asks
    // afdd to void it, says so by ask_void(), and gives the answer. Meanwhile the lane is not free.
    virtual std::optional<LaneRound> voidable() const { return std::nullopt; }
    virtual void ask_void(const LaneRound& /*round*/) {}
    virtual void answer_void(const LaneRound& /*round*/, bool /*is_granted*/) {}
    // Whether the open call will get no result from a rank: the caller cancels, and starts it again
    // when the lane is free, or gives its rows to another lane. A lane of long prompts says so also
    // of a call that would be started.
    virtual bool is_voided() const { return false; }

    // --- about the call that was finished last, or is open ---

    // The routing weights [num_tokens, top_k] that came back with the rows, if they were routed
    // elsewhere: valid from finish() to the next start(). Null: the caller had them.
    virtual const float* topk_weights() const { return nullptr; }

    // The number of its round, by which traces of both sides are joined; 0: it has none.
    virtual int32_t round() const { return 0; }

    // --- memory ---

    // What afdd hands over for an open call (kSegment), or why it does not: the lane takes what is
    // for it out of `command`.
    virtual void take_segments(WorkerCommand& /*command*/) {}

    // --- waiting ---

    // Whether what the lane waits for has come: that it is free, a step of its call, or its result.
    virtual bool is_answered(schedule::Order order) const = 0;

    // For whom it waits now, call open or not (R7); nothing if for nobody. `now_us`, of one
    // clock that the caller keeps to, ages the peer's heartbeat: to be called at every tick of a
    // wait.
    virtual std::optional<LaneWait> waits_for(uint64_t /*now_us*/) { return std::nullopt; }

  private:
    const LaneTraits traits_;
};

}  // namespace afd::daemon
