// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_phase_sender.h"

#include <algorithm>
#include <cstring>

#include "schedule/round.h"

namespace afd::schedule {

TwoPhaseSender::TwoPhaseSender(const TwoPhaseControlLayout& layout,
                               uint32_t session,
                               std::byte* own,
                               std::vector<const std::byte*> ranks,
                               std::vector<DoorbellRinger> ringers)
    : layout_(layout),
      session_(session),
      own_(own),
      ranks_(std::move(ranks)),
      ringers_(std::move(ringers)) {
    AFD_ASSERT(ranks_.size() == layout.num_ranks && ringers_.size() == layout.num_ranks &&
                   session < layout.num_sessions,
               "session %u of %u, %zu areas and %zu doorbells for %u ranks",
               session,
               layout.num_sessions,
               ranks_.size(),
               ringers_.size(),
               layout.num_ranks);
    offered_.reserve(layout.num_ranks);
    for (uint32_t rank = 0; rank < layout.num_ranks; ++rank) {
        const int32_t left = observe_own(this->own(rank).offer);
        round_ = std::max(round_, left);
        if (left == observe(peer(rank).acknowledged, Order::kAcquire)) continue;
        publish_seq_cst(this->own(rank).closed, left);
        ringers_[rank].ring_if_armed();
    }
}

TwoPhaseSessionWords& TwoPhaseSender::own(uint32_t rank) const {
    void* stripe = own_ + rank * layout_.session_stripe_bytes;
    return *static_cast<TwoPhaseSessionWords*>(stripe);
}

const TwoPhaseRankWords& TwoPhaseSender::peer(uint32_t rank) const {
    const void* stripe = ranks_[rank] + session_ * layout_.rank_stripe_bytes;
    return *static_cast<const TwoPhaseRankWords*>(stripe);
}

bool TwoPhaseSender::may_begin(Order order) const {
    for (uint32_t rank = 0; rank < layout_.num_ranks; ++rank) {
        if (observe(peer(rank).acknowledged, order) != observe_own(own(rank).offer)) return false;
    }
    return true;
}

// Whether a word of any rank's stripes carries this number.
bool TwoPhaseSender::stands(int32_t round) const {
    for (uint32_t rank = 0; rank < layout_.num_ranks; ++rank) {
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
    AFD_ASSERT(!is_open_ && may_begin(Order::kAcquire),
               "round %d is not acknowledged by all (R4, R10)",
               round_);
    round_ = choose_round(round_, [this](int32_t round) { return stands(round); });
    offered_.clear();
    is_open_ = true;
    return round_;
}

void TwoPhaseSender::offer(uint32_t rank, const TwoPhaseOffer& offer) {
    AFD_ASSERT(is_open_ && rank < layout_.num_ranks && offer.counts.size() <= layout_.num_experts,
               "rank %u of %u, %zu experts of %u",
               rank,
               layout_.num_ranks,
               offer.counts.size(),
               layout_.num_experts);
    TwoPhaseSessionWords& words = own(rank);
    // The rank reads these only after it saw the offer, and looks at none of an older round.
    publish_release(words.sent, 0);
    publish_release(words.combined, 0);
    words.layer_id = offer.layer_id;
    words.num_blocks = static_cast<int32_t>(offer.num_blocks);
    words.block_rows_max = static_cast<int32_t>(offer.block_rows_max);
    std::memcpy(&words + 1, offer.counts.data(), offer.counts.size() * sizeof(int32_t));
    publish_seq_cst(words.offer, round_);
    ringers_[rank].ring_if_armed();
    offered_.push_back(rank);
    layer_id_ = offer.layer_id;
}

TwoPhaseSender::Answer TwoPhaseSender::answer(uint32_t rank, Order order) const {
    const int32_t granted = observe(peer(rank).granted, order);
    if (granted == round_) return Answer::kGranted;
    return granted == refused_mark(round_) ? Answer::kRefused : Answer::kPending;
}

Result<> TwoPhaseSender::copy_grants(uint32_t rank,
                                     const TwoPhaseOffer& offer,
                                     std::span<int64_t> grants) const {
    std::memcpy(grants.data(), &peer(rank) + 1, offer.counts.size() * sizeof(int64_t));
    const auto num_rows = static_cast<int64_t>(offer.num_rows());
    int64_t free = 0;
    for (size_t expert = 0; expert < offer.counts.size(); ++expert) {
        const int64_t count = offer.counts[expert];
        if (count == 0) continue;
        if (grants[expert] < free || count > num_rows - grants[expert]) {
            return Error{Code::kDataLoss,
                         "ffn rank " + std::to_string(rank) + " granted row " +
                             std::to_string(grants[expert]) + " for " + std::to_string(count) +
                             " rows of local expert " + std::to_string(expert) +
                             "; rows must ascend by expert from row " + std::to_string(free) +
                             " and end by row " + std::to_string(num_rows)};
        }
        free = grants[expert] + count;
    }
    return {};
}

void TwoPhaseSender::publish_sent(uint32_t rank, uint32_t num_blocks) {
    publish_seq_cst(own(rank).sent, static_cast<int32_t>(num_blocks));
    ringers_[rank].ring_if_armed();
}

uint32_t TwoPhaseSender::returned(uint32_t rank, uint32_t num_blocks, Order order) const {
    const int32_t returned = observe(peer(rank).returned, order);
    const bool is_valid = returned >= 0 && static_cast<uint32_t>(returned) <= num_blocks;
    return is_valid ? static_cast<uint32_t>(returned) : 0;
}

void TwoPhaseSender::publish_combined(uint32_t rank, uint32_t num_blocks) {
    publish_seq_cst(own(rank).combined, static_cast<int32_t>(num_blocks));
    ringers_[rank].ring_if_armed();
}

void TwoPhaseSender::close() {
    if (!is_open_) return;
    for (const uint32_t rank : offered_) {
        publish_seq_cst(own(rank).closed, round_);
        ringers_[rank].ring_if_armed();
    }
    is_open_ = false;
}

std::optional<WaitInfo> TwoPhaseSender::wait_info(uint32_t num_combined) const {
    const auto wait = [this](WaitKind kind, uint32_t rank, int32_t seen, int32_t expected) {
        return WaitInfo{kind, static_cast<int32_t>(rank), -1, layer_id_, seen, expected};
    };
    for (uint32_t rank = 0; !is_open_ && rank < layout_.num_ranks; ++rank) {
        const int32_t seen = observe(peer(rank).acknowledged, Order::kAcquire);
        const int32_t expected = observe_own(own(rank).offer);
        if (seen != expected) return wait(WaitKind::kAcknowledged, rank, seen, expected);
    }
    for (const uint32_t rank : offered_) {
        const int32_t seen = observe(peer(rank).granted, Order::kAcquire);
        if (is_open_ && !carries_round(seen, round_)) {
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
