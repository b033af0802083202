// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseSender: a session's side of the two-phase control area (two_phase_control.h).
//
//   may_begin()? -> begin() -> offer(rank)... -> answer(rank) until all granted ->
//   copy_grants(rank)
//        ^             -> publish_sent(rank) / returned(rank) / publish_combined(rank) ...
//        +---------------------------------- close() -----------------------------------'
//
// Between answer() and close() the round has memory at each rank, open(rank); close() gives it up
// and may come at any time after begin().
// One data thread. What ranks wrote is validated; nothing allocates after construction.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/context/heartbeat.h"
#include "schedule/transport/two_phase_transport.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

class TwoPhaseSender {
  public:
    enum class Answer { kPending, kGranted, kRefused };

    // Closes what a predecessor left (R10). The transport outlives the object.
    explicit TwoPhaseSender(TwoPhaseDispatchTransport& transport);

    uint32_t num_ranks() const { return transport_->layout().num_ranks; }
    uint32_t session() const { return transport_->index(); }

    // Whether every rank has acknowledged the last round that was offered to it (R4, R10).
    bool may_begin(Order order) const;

    // Chooses the number of the next round (R1). REQUIRES: may_begin().
    int32_t begin();
    int32_t round() const { return round_; }

    // Publishes sizes and counts to a rank. REQUIRES: begin(); a rank gets one offer a round.
    void offer(uint32_t rank, const TwoPhaseOffer& offer);
    // Ranks of the round, in the order of offer().
    std::span<const uint32_t> offered() const { return offered_; }

    // What a rank of the round says to it. Granted once the memory is here, too, which comes
    // another way.
    Answer answer(uint32_t rank, Order order) const;

    // Copies the first row of each expert, [num_experts]; of one without rows, the next free row.
    // Errors: kDataLoss: an expert's rows would leave the segment, or overlap.
    // REQUIRES: answer() was kGranted.
    Result<> copy_grants(uint32_t rank,
                         const TwoPhaseOffer& offer,
                         std::span<int64_t> grants) const;

    // The round's memory at a rank: `sent` is the receive segment's layout, `received` the return
    // segment's (two_phase_control.h). Errors: those of the transport.
    // REQUIRES: answer() was kGranted; good until close().
    Result<TwoPhaseRoundMemory> open(uint32_t rank, const TwoPhaseSizes& sizes) {
        return transport_->open(rank, round_, sizes);
    }
    // Puts bytes that were written to `sent`. REQUIRES: open().
    void put(uint32_t rank, uint64_t offset, uint64_t bytes) {
        transport_->put(rank, offset, bytes);
    }

    // See TwoPhaseTransport.
    uint32_t blocks_ahead() const { return transport_->blocks_ahead(); }
    // `num_done`: so far, of the round's `num_blocks`.
    void publish_sent(uint32_t rank, uint32_t num_done);
    // Blocks whose results are complete. A value outside [0, num_blocks] reads as 0.
    uint32_t returned(uint32_t rank, uint32_t num_blocks, Order order) const;
    void publish_combined(uint32_t rank, uint32_t num_done);

    // Ends the round at every rank. Does nothing outside a round.
    void close();

    // For whom the session waits (R7): a rank that has not answered, or whose memory is not here;
    // or that has not returned `num_combined` + 1 blocks, or acknowledged.
    std::optional<WaitInfo> wait_info(uint32_t num_combined) const;

  private:
    const TwoPhaseSessionWords& own(uint32_t rank) const { return transport_->own(rank); }
    const TwoPhaseRankWords& peer(uint32_t rank) const { return transport_->mirror(rank); }
    bool stands(int32_t round) const;

    TwoPhaseDispatchTransport* transport_;
    std::vector<uint32_t> offered_;
    int32_t round_ = 0;
    int32_t layer_id_ = 0;
    bool is_open_ = false;
};

}  // namespace afd::schedule
