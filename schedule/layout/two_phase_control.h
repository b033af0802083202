// SPDX-License-Identifier: Apache-2.0
#pragma once

// The control area of the two-phase dispatch: what a session and an FFN rank tell each other about
// the rounds that are too large for the windows.
//
// One round of (session, rank), and who writes what:
//
//   session                                        rank
//     counts, layer, sizes; offer = round   ->       (phase 1: sizes only)
//                                           <-     grants (first row of each expert);
//                                                  granted = round, or minus it: refused
//     rows of block b; sent = b + 1         ->       (phase 2: blocks of rows)
//                                           <-     result rows of block b; returned = b + 1
//     block b is used; combined = b + 1     ->       its place may take block b + 2
//     closed = round                        ->       finished, or given up at any point before
//                                           <-     acknowledged = round: nothing of it is touched
//                                                  any more, and its memory goes back
//
// Every word has one writing process. All of it is a log, as descriptors are (R3): a rank's
// successor finds offer != acknowledged and goes on from `returned`; a session's successor closes
// what its predecessor left and waits for the acknowledgement (R10). A new round needs the old
// one's acknowledgement by every rank (R4), and a number that stands in no word of it (R1). Between
// machines a round ends with its connection instead (R17).
//
// The session's area has a stripe per rank, the rank's a stripe per session. The rows lie in two
// segments that afdd makes for the round when the rank asks for them:
//   receive   written by the session: counts of each block int32 [num_blocks][num_experts], then
//             the rows [num_rows] at their grants; exactly as large as what arrives
//   return    written by the rank: results of kTwoPhaseReturnBlocks blocks, block b in place
//             b mod that; a block's rows in the order of its sorted indices

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"
#include "schedule/layout/geometry.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

// Blocks of results that wait for their session at most: the rank computes one while the session
// combines another.
inline constexpr uint32_t kTwoPhaseReturnBlocks = 2;

// Head of a session's stripe for one rank: one line. The counts, int32 [num_experts], follow.
struct alignas(kLineBytes) TwoPhaseSessionWords {
    static constexpr size_t kNumSeen = 7;  // The first words: what the rank sees of them.

    int32_t offer;
    int32_t sent;
    int32_t combined;
    int32_t closed;
    int32_t layer_id;
    int32_t num_blocks;
    int32_t block_rows_max;  // Rows of the largest block.
    std::array<uint8_t, kLineBytes - 28> reserve;
};
static_assert(sizeof(TwoPhaseSessionWords) == kLineBytes);
static_assert(offsetof(TwoPhaseSessionWords, layer_id) == 16 &&
                  offsetof(TwoPhaseSessionWords, block_rows_max) == 24,
              "the sizes of an offer lie together");

// Head of a rank's stripe for one session: one line. The grants, int64 [num_experts], follow.
struct alignas(kLineBytes) TwoPhaseRankWords {
    static constexpr size_t kNumSeen = 3;  // Likewise: what the session sees.

    int32_t granted;
    int32_t returned;
    int32_t acknowledged;
    std::array<uint8_t, 4> padding;
    uint64_t execution;  // Of the round's blocks (execution_log.h).
    std::array<uint8_t, kLineBytes - 24> reserve;
};
static_assert(sizeof(TwoPhaseRankWords) == kLineBytes);
static_assert(offsetof(TwoPhaseSessionWords, reserve) ==
                      TwoPhaseSessionWords::kNumSeen * sizeof(int32_t) &&
                  offsetof(TwoPhaseRankWords, padding) ==
                      TwoPhaseRankWords::kNumSeen * sizeof(int32_t),
              "the words that a peer sees lie at the beginning");

struct TwoPhaseControlLayout {
    uint32_t num_sessions = 0;
    uint32_t num_ranks = 0;
    uint32_t num_experts = 0;  // Local experts of a rank, at most: those of a layer.
    uint64_t session_stripe_bytes = 0;
    uint64_t rank_stripe_bytes = 0;

    // REQUIRES: validate(geometry).
    static TwoPhaseControlLayout compute(const Geometry& geometry);

    uint64_t session_bytes() const { return num_ranks * session_stripe_bytes; }
    uint64_t rank_bytes() const { return num_sessions * rank_stripe_bytes; }
};

// The sizes of one round between a session and a rank.
struct TwoPhaseOffer {
    int32_t layer_id = 0;
    uint32_t num_blocks = 0;
    uint32_t block_rows_max = 0;
    std::vector<int32_t> counts;  // [num_experts]: rows for each local expert

    uint64_t num_rows() const;
};

// What a call of a session can have at most: bounds of every offer of the instance. One of 0 tokens
// has no rounds.
struct TwoPhaseCall {
    uint32_t num_tokens = 0;           // prefill_tokens_max
    uint32_t block_tokens = 1;         // At least 1.
    uint32_t selected_expert_num = 0;  // K1: rows of a token.

    uint64_t num_rows() const { return uint64_t{num_tokens} * selected_expert_num; }
    uint64_t num_blocks() const { return (uint64_t{num_tokens} + block_tokens - 1) / block_tokens; }
    uint64_t block_rows() const {
        return uint64_t{std::min(num_tokens, block_tokens)} * selected_expert_num;
    }
};

// Where the rows begin in the receive segment.
uint64_t two_phase_rows_offset(uint64_t num_blocks, uint64_t num_experts);

// Bytes of a row on its way to the experts, and of a result.
struct TwoPhaseRowBytes {
    uint64_t sent = 0;
    uint64_t returned = 0;
};

// Bytes of the two segments of a round.
struct TwoPhaseSizes {
    uint64_t receive_bytes = 0;
    uint64_t return_bytes = 0;

    friend bool operator==(const TwoPhaseSizes&, const TwoPhaseSizes&) = default;
};
// REQUIRES: the offer was validated.
TwoPhaseSizes two_phase_sizes(const TwoPhaseOffer& offer, const TwoPhaseRowBytes& row_bytes);

// What no round of such a call exceeds, however its rows go to the experts.
TwoPhaseSizes two_phase_sizes_max(const TwoPhaseCall& call,
                                  uint32_t num_experts,
                                  const TwoPhaseRowBytes& row_bytes);

// First byte of the results of `block` in the return segment.
inline uint64_t two_phase_return_offset(uint32_t block,
                                        uint64_t block_rows_max,
                                        uint64_t row_bytes) {
    return (block % kTwoPhaseReturnBlocks) * block_rows_max * row_bytes;
}

enum class TwoPhaseSegment { kReceive, kReturn };

// "<prefix>-ffn<rank>-receive<session>r<round>", "...-return...".
std::string two_phase_segment_name(std::string_view prefix,
                                   TwoPhaseSegment segment,
                                   uint32_t rank,
                                   uint32_t session,
                                   int32_t round);

}  // namespace afd::schedule
