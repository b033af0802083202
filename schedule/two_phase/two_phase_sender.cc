// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_phase/two_phase_sender.h"

#include <algorithm>
#include <cstring>

#include "proto/crash_point.h"
#include "proto/failure.h"
#include "schedule/layout/round.h"

namespace afd::schedule {

TwoPhaseSender::TwoPhaseSender(TwoPhaseDispatchTransport& transport) : transport_(&transport) {
    offered_.reserve(num_ranks());
    for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
        const int32_t left = observe_own(own(rank).offer);
        // As a start for choose_round() only. After the wrap it is merely a number that costs some
        // tries.
        round_ = std::max(round_, left);
        if (left == observe(peer(rank).acknowledged, Order::kAcquire)) continue;
        // What still arrives of the predecessor's round is dropped first; then the rank may forget
        // it.
        AFD_CRASH_POINT("takeover.two_phase_found");
        transport_->close(rank, left);
        transport_->publish(rank, &TwoPhaseSessionWords::closed, left);
    }
}

bool TwoPhaseSender::may_begin(Order order) const {
    for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
        // All ranks and not those of the last round (R4, R10): a rank that was offered nothing has
        // equal words anyway.
        if (observe(peer(rank).acknowledged, order) != observe_own(own(rank).offer)) return false;
    }
    return true;
}

// Whether a word of any rank's stripes carries this number.
bool TwoPhaseSender::stands(int32_t round) const {
    for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
        const TwoPhaseRankWords& words = peer(rank);
        if (observe_own(own(rank).offer) == round || observe_own(own(rank).closed) == round ||
            carries_round(observe(words.granted, Order::kAcquire), round) ||
            observe(words.acknowledged, Order::kAcquire) == round) {
            return true;
        }
    }
    return false;
}

int32_t TwoPhaseSender::begin() {
    // may_begin() was asked by the caller and is not asked again: a rank that takes back its
    // acknowledgement would end this process instead of its own rounds.
    AFD_ASSERT(!is_open_, "round %d is open", round_);
    constexpr size_t kWordsOfARank = 4;
    round_ = choose_round(
        round_, kWordsOfARank * num_ranks(), [this](int32_t round) { return stands(round); });
    offered_.clear();
    is_open_ = true;
    return round_;
}

void TwoPhaseSender::offer(uint32_t rank, const TwoPhaseOffer& offer) {
    AFD_ASSERT(
        is_open_ && rank < num_ranks() && offer.counts.size() <= transport_->layout().num_experts,
        "rank %u of %u, %zu experts of %u",
        rank,
        num_ranks(),
        offer.counts.size(),
        transport_->layout().num_experts);
    TwoPhaseSessionWords& words = transport_->own(rank);
    // The rank reads these only after it saw the offer, and looks at none of an older round.
    publish_release(words.sent, 0);
    publish_release(words.combined, 0);
    words.layer_id = offer.layer_id;
    words.num_blocks = static_cast<int32_t>(offer.num_blocks);
    words.block_rows_max = static_cast<int32_t>(offer.block_rows_max);
    const size_t table_bytes = offer.counts.size() * sizeof(int32_t);
    // Plain stores, ordered by the offer that publish() stores behind them.
    std::memcpy(transport_->own_table(rank), offer.counts.data(), table_bytes);
    AFD_CRASH_POINT("offer.table_stored");
    transport_->publish(rank, &TwoPhaseSessionWords::offer, round_, table_bytes);
    AFD_CRASH_POINT("offer.published");
    offered_.push_back(rank);
    layer_id_ = offer.layer_id;
}

TwoPhaseSender::Answer TwoPhaseSender::answer(uint32_t rank, Order order) const {
    const int32_t granted = observe(peer(rank).granted, order);
    if (granted == round_) {
        return transport_->may_open(rank, round_) ? Answer::kGranted : Answer::kPending;
    }
    return granted == refused_mark(round_) ? Answer::kRefused : Answer::kPending;
}

Result<> TwoPhaseSender::copy_grants(uint32_t rank,
                                     const TwoPhaseOffer& offer,
                                     std::span<int64_t> grants) const {
    const void* table = transport_->mirrored_table(rank);
    const auto* shared = static_cast<const int64_t*>(table);
    // The grants came with the word that answer() observed.
    for (size_t expert = 0; expert < offer.counts.size(); ++expert) {
        grants[expert] = load_once(shared[expert]);
    }
    // Checked against what was offered: rows are written at these places, so a rank's wrong word
    // would otherwise write beyond the segment. `grants >= free >= 0` keeps the subtraction from
    // wrapping.
    const auto num_rows = static_cast<int64_t>(offer.num_rows());
    int64_t free = 0;
    for (size_t expert = 0; expert < offer.counts.size(); ++expert) {
        const int64_t count = offer.counts[expert];
        if (count == 0) {
            // Nobody goes by it; but nothing that a peer says is kept unjudged.
            grants[expert] = free;
            continue;
        }
        if (grants[expert] < free || count > num_rows - grants[expert]) {
            return data_loss(
                "ffn rank {} granted row {} for {} rows of local expert {}; rows must ascend by "
                "expert from row {} and end by row {}",
                with(rank, grants[expert], count, expert, free, num_rows));
        }
        free = grants[expert] + count;
    }
    return {};
}

void TwoPhaseSender::publish_sent(uint32_t rank, uint32_t num_done) {
    AFD_CRASH_POINT("send.block_stored");
    transport_->publish(rank, &TwoPhaseSessionWords::sent, static_cast<int32_t>(num_done));
    AFD_CRASH_POINT("send.published");
}

uint32_t TwoPhaseSender::returned(uint32_t rank, uint32_t num_blocks, Order order) const {
    const int32_t returned = observe(peer(rank).returned, order);
    // An impossible count reads as none; the round then ends at its deadline with a report (R7).
    const bool is_valid = returned >= 0 && static_cast<uint32_t>(returned) <= num_blocks;
    return is_valid ? static_cast<uint32_t>(returned) : 0;
}

void TwoPhaseSender::publish_combined(uint32_t rank, uint32_t num_done) {
    AFD_CRASH_POINT("combine.block_summed");
    transport_->publish(rank, &TwoPhaseSessionWords::combined, static_cast<int32_t>(num_done));
    AFD_CRASH_POINT("combine.block_published");
}

void TwoPhaseSender::close() {
    if (!is_open_) return;
    for (const uint32_t rank : offered_) {
        transport_->close(rank, round_);
        AFD_CRASH_POINT("close.unmapped");
        transport_->publish(rank, &TwoPhaseSessionWords::closed, round_);
        AFD_CRASH_POINT("close.published");
    }
    is_open_ = false;
}

std::optional<WaitInfo> TwoPhaseSender::wait_info(uint32_t num_combined) const {
    const auto wait = [this](WaitKind kind, uint32_t rank, int32_t seen, int32_t expected) {
        return WaitInfo{kind, static_cast<int32_t>(rank), -1, layer_id_, seen, expected};
    };
    for (uint32_t rank = 0; !is_open_ && rank < num_ranks(); ++rank) {
        const int32_t seen = observe(peer(rank).acknowledged, Order::kAcquire);
        const int32_t expected = observe_own(own(rank).offer);
        if (seen != expected) return wait(WaitKind::kAcknowledged, rank, seen, expected);
    }
    for (const uint32_t rank : offered_) {
        if (is_open_ && answer(rank, Order::kAcquire) == Answer::kPending) {
            const int32_t seen = observe(peer(rank).granted, Order::kAcquire);
            return wait(WaitKind::kGrant, rank, seen, round_);
        }
    }
    for (const uint32_t rank : offered_) {
        const int32_t seen = observe(peer(rank).returned, Order::kAcquire);
        const auto expected = static_cast<int32_t>(num_combined) + 1;
        if (is_open_ && seen < expected) return wait(WaitKind::kResults, rank, seen, expected);
    }
    return std::nullopt;
}

}  // namespace afd::schedule
