// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseReceiver: a rank's side of the two-phase control area (two_phase_control.h): the words of
// all sessions, and the order in which the rank may write its own. It keeps no state of a round, so
// a successor reads where its predecessor was.
//
// Bytes of sessions are copied once and validated. One data thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/execution_log.h"
#include "schedule/transport/two_phase_transport.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

class TwoPhaseReceiver {
  public:
    struct Limits {
        uint32_t num_experts = 0;  // Counts of an offer: local ids of every rank are below.
        TwoPhaseRowBytes row_bytes;
        TwoPhaseCall call;  // What a session may offer.
    };

    // Transport and placement outlive the object.
    TwoPhaseReceiver(TwoPhaseReturnTransport& transport,
                     const ExpertPlacement& placement,
                     const Limits& limits);

    uint32_t num_sessions() const { return transport_->layout().num_sessions; }
    uint32_t rank() const { return transport_->index(); }

    // The round that the session offers and the rank has not acknowledged; 0: none.
    int32_t open_round(uint32_t session, Order order) const;
    // The round acknowledged last; 0: none.
    int32_t acknowledged(uint32_t session) const;
    // Whether the session has ended that round: it said so, or its offer stands no longer, which
    // only a session that breaks R4 makes so. Its successor knows nothing of a round that does not
    // stand, and would never close it.
    bool is_closed(uint32_t session, int32_t round, Order order) const;
    // What the rank, or its predecessor, answered to it: 0, round, or minus round.
    int32_t granted(uint32_t session, int32_t round) const;

    // A private, valid copy of the offer (R2), into `offer`, which keeps its memory.
    // Errors: kInvalidArgument naming field, value and what is allowed.
    Result<> copy_offer(uint32_t session, TwoPhaseOffer& offer) const;

    // Blocks sent and combined; a value outside [0, num_blocks] reads as 0.
    uint32_t sent(uint32_t session, uint32_t num_blocks, Order order) const;
    uint32_t combined(uint32_t session, uint32_t num_blocks, Order order) const;
    // Blocks that a predecessor returned of a round that it granted: for its successor, once. Later
    // the rank goes by its own count and not by the word, which others could write.
    // Errors: kDataLoss: more than were sent, or below 0.
    Result<uint32_t> copy_returned(uint32_t session, uint32_t num_blocks) const;

    // The round's memory: `received` is the receive segment's layout, `sent` the return segment's
    // (two_phase_control.h). Errors: those of the transport.
    // REQUIRES: afdd granted the memory; good until close().
    Result<TwoPhaseRoundMemory> open(uint32_t session, int32_t round, const TwoPhaseSizes& sizes) {
        return transport_->open(session, round, sizes);
    }
    void close(uint32_t session, int32_t round) { transport_->close(session, round); }

    // REQUIRES: the round is open; grants [num_experts] are rows inside.
    void grant(uint32_t session, int32_t round, std::span<const int64_t> grants);
    void refuse(uint32_t session, int32_t round);
    // R11: executions of a block of the round that were started and not ended by publish_returned;
    // after ExecutionLog::kDeadly of them the round is to be refused.
    uint32_t num_unfinished(uint32_t session, int32_t round) const;
    void start_block(uint32_t session, int32_t round);
    // Puts results that were written to `sent`.
    void put(uint32_t session, uint64_t offset, uint64_t bytes) {
        transport_->put(session, offset, bytes);
    }
    void publish_returned(uint32_t session, uint32_t num_blocks);
    // REQUIRES: the session closed the round, close() was called, and its memory was given back.
    void acknowledge(uint32_t session, int32_t round);

  private:
    Result<> check_counts(const TwoPhaseOffer& offer, uint64_t& num_rows) const;
    const TwoPhaseSessionWords& peer(uint32_t session) const { return transport_->mirror(session); }
    TwoPhaseRankWords& own(uint32_t session) const { return transport_->own(session); }
    ExecutionLog executions(uint32_t session) const;

    TwoPhaseReturnTransport* transport_;
    const ExpertPlacement* placement_;
    Limits limits_;
};

}  // namespace afd::schedule
