// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/two_phase_control.h"

#include <algorithm>
#include <numeric>

namespace afd::schedule {

TwoPhaseControlLayout TwoPhaseControlLayout::compute(const Geometry& geometry) {
    TwoPhaseControlLayout layout;
    layout.num_sessions = geometry.num_sessions;
    layout.num_ranks = geometry.num_ffn_workers;
    layout.num_experts = geometry.num_experts;
    // Whole lines: the stripes have different readers, and two words of different writers never
    // share a line (window_layout.h).
    layout.session_stripe_bytes =
        sizeof(TwoPhaseSessionWords) +
        round_up(uint64_t{layout.num_experts} * sizeof(int32_t), kLineBytes);
    layout.rank_stripe_bytes = sizeof(TwoPhaseRankWords) +
                               round_up(uint64_t{layout.num_experts} * sizeof(int64_t), kLineBytes);
    return layout;
}

uint64_t TwoPhaseOffer::num_rows() const {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

uint64_t two_phase_rows_offset(uint64_t num_blocks, uint64_t num_experts) {
    // No overflow: both factors were int32, so the product stays below 2^64.
    return round_up(num_blocks * num_experts * sizeof(int32_t), kLineBytes);
}

TwoPhaseSizes two_phase_sizes(const TwoPhaseOffer& offer, const TwoPhaseRowBytes& row_bytes) {
    // Results come block by block and are used at once, so a place for each block would be memory
    // for nothing. A single block needs one place only.
    const uint64_t places = std::min(offer.num_blocks, kTwoPhaseReturnBlocks);
    return {two_phase_rows_offset(offer.num_blocks, offer.counts.size()) +
                offer.num_rows() * row_bytes.sent,
            places * offer.block_rows_max * row_bytes.returned};
}

TwoPhaseSizes two_phase_sizes_max(const TwoPhaseCall& call,
                                  uint32_t num_experts,
                                  const TwoPhaseRowBytes& row_bytes) {
    const uint64_t places = std::min<uint64_t>(call.num_blocks(), kTwoPhaseReturnBlocks);
    return {
        two_phase_rows_offset(call.num_blocks(), num_experts) + call.num_rows() * row_bytes.sent,
        places * call.block_rows() * row_bytes.returned};
}

std::string two_phase_segment_name(std::string_view prefix,
                                   TwoPhaseSegment segment,
                                   uint32_t rank,
                                   uint32_t session,
                                   int32_t round) {
    return std::string(prefix) + "-ffn" + std::to_string(rank) +
           (segment == TwoPhaseSegment::kReceive ? "-receive" : "-return") +
           std::to_string(session) + "r" + std::to_string(round);
}

}  // namespace afd::schedule
