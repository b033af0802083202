// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseSender: a session's side of the two-phase control area (two_phase_control.h).
//
//   may_begin()? -> begin() -> offer(rank)... -> answer(rank) until all granted -> grants(rank)
//        ^             -> publish_sent(rank) / returned(rank) / publish_combined(rank) ...
//        +---------------------------------- close() -----------------------------------'
//
// close() may come at any time after begin(); the memory of the round must be unmapped before.
// One data thread. What ranks wrote is validated; nothing allocates after construction.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/doorbell.h"
#include "schedule/flag.h"
#include "schedule/heartbeat.h"
#include "schedule/two_phase_control.h"

namespace afd::schedule {

class TwoPhaseSender {
  public:
    enum class Answer { kPending, kGranted, kRefused };

    // `own` is the session's area; `ranks` the areas of all ranks, and `ringers` their doorbells.
    // Closes what a predecessor left (R10). All memory outlives the object.
    TwoPhaseSender(const TwoPhaseControlLayout& layout,
                   uint32_t session,
                   std::byte* own,
                   std::vector<const std::byte*> ranks,
                   std::vector<DoorbellRinger> ringers);

    uint32_t num_ranks() const { return layout_.num_ranks; }

    // Whether every rank has acknowledged the last round that was offered to it (R4, R10).
    bool may_begin(Order order) const;

    // Chooses the number of the next round (R1). REQUIRES: may_begin().
    int32_t begin();
    int32_t round() const { return round_; }

    // Publishes sizes and counts to a rank. REQUIRES: begin(); a rank gets one offer a round.
    void offer(uint32_t rank, const TwoPhaseOffer& offer);
    // Ranks of the round, ascending.
    std::span<const uint32_t> offered() const { return offered_; }

    // What a rank of the round says to it.
    Answer answer(uint32_t rank, Order order) const;

    // Copies the first row of each expert, [num_experts].
    // Errors: kDataLoss: an expert's rows would leave the segment, or overlap.
    // REQUIRES: answer() was kGranted.
    Result<> copy_grants(uint32_t rank,
                         const TwoPhaseOffer& offer,
                         std::span<int64_t> grants) const;

    void publish_sent(uint32_t rank, uint32_t num_blocks);
    // Blocks whose results are complete. A value outside [0, num_blocks] reads as 0.
    uint32_t returned(uint32_t rank, uint32_t num_blocks, Order order) const;
    void publish_combined(uint32_t rank, uint32_t num_blocks);

    // Ends the round at every rank. Does nothing outside a round.
    void close();

    // For whom the session waits (R7): a rank that has not answered, returned `num_combined` + 1
    // blocks, or acknowledged.
    std::optional<WaitInfo> wait_info(uint32_t num_combined) const;

  private:
    TwoPhaseSessionWords& own(uint32_t rank) const;
    const TwoPhaseRankWords& peer(uint32_t rank) const;
    bool stands(int32_t round) const;

    TwoPhaseControlLayout layout_;
    uint32_t session_;
    std::byte* own_;
    std::vector<const std::byte*> ranks_;
    std::vector<DoorbellRinger> ringers_;
    std::vector<uint32_t> offered_;
    int32_t round_ = 0;
    int32_t layer_id_ = 0;
    bool is_open_ = false;
};

}  // namespace afd::schedule
