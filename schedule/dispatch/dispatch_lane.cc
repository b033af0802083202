// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/dispatch_lane.h"

#include <algorithm>

#include "proto/crash_point.h"
#include "schedule/layout/round.h"

namespace afd::schedule {

DispatchLane::DispatchLane(DispatchTransport& transport,
                           const Geometry& geometry,
                           uint32_t micro_batch)
    : transport_(&transport),
      num_ranks_(geometry.num_ffn_workers),
      micro_batch_(micro_batch),
      selected_expert_num_(geometry.selected_expert_num),
      slots_per_rank_(geometry.slots_per_micro_batch()),
      // Any start would do: choose_round() tries numbers until one stands nowhere (R1). This one
      // makes the first try succeed in nearly every case.
      round_(transport.descriptor_flag(0, micro_batch)),
      voids_(num_ranks_),
      has_rows_(num_ranks_, 0),
      ids_(num_ranks_ * slots_per_rank_, kMaskedId),
      is_used_(slots_per_rank_, 0) {
    published_ranks_.reserve(num_ranks_);
    slots_.reserve(slots_per_rank_);
}

bool DispatchLane::may_store() {
    // R10: every rank counts, used or not, because a predecessor may have published to any. Both
    // counters only advance: an acknowledgement that was seen stays, since only this lane could end
    // it.
    for (; num_taken_over_ < num_ranks_; ++num_taken_over_) {
        if (!is_taken_over(num_taken_over_, Order::kAcquire)) return false;
        AFD_CRASH_POINT("takeover.rank_let_go");
    }
    for (; num_acknowledged_ < published_ranks_.size(); ++num_acknowledged_) {
        if (!is_done_with(published_ranks_[num_acknowledged_], Order::kAcquire)) return false;
    }
    // R12: the answer must not be about another round than the one that stands there.
    return asked_rank_ == kAnyRank;
}

void DispatchLane::begin(int32_t layer_id) {
    AFD_ASSERT(may_store(),
               "micro-batch %u: round %d is not acknowledged by all (R4, R10)",
               micro_batch_,
               round_);
    // The ids become masked again slot by slot: clearing all F · BS · K1 of them would cost a round
    // of one token as much as a full one.
    for (const Slot& slot : slots_) {
        const bool is_offered = slot.rank == kAnyRank;
        const uint32_t end = is_offered ? num_ranks_ : slot.rank + 1;
        for (uint32_t rank = is_offered ? 0 : slot.rank; rank < end; ++rank) {
            ids_of(rank)[slot.index] = kMaskedId;
        }
        is_used_[slot.index] = 0;
    }
    slots_.clear();
    has_offers_ = false;
    std::fill(has_rows_.begin(), has_rows_.end(), uint8_t{0});
    layer_id_ = layer_id;
    is_storing_ = true;
    was_published_ = false;
    AFD_CRASH_POINT("dispatch.began");
}

void DispatchLane::occupy(uint32_t token_idx, uint32_t k, uint32_t rank) {
    AFD_ASSERT(is_storing_, "micro-batch %u: a slot outside begin() ... publish()", micro_batch_);
    const size_t index = size_t{token_idx} * selected_expert_num_ + k;
    AFD_ASSERT((rank < num_ranks_ || rank == kAnyRank) && k < selected_expert_num_ &&
                   index < slots_per_rank_ && is_used_[index] == 0,
               "rank %u, token %u, k %u of micro-batch %u is out of range or used twice",
               rank,
               token_idx,
               k,
               micro_batch_);
    if (rank != kAnyRank) assert_may_store_to(rank);
    is_used_[index] = 1;
    slots_.push_back({static_cast<uint32_t>(index), rank});
}

bool DispatchLane::may_store_to(uint32_t rank) {
    VoidState& state = voids_[rank].state;
    if (state != VoidState::kOpen) return true;
    const int32_t stands = transport_->descriptor_flag(rank, micro_batch_);
    if (is_acknowledged(rank, stands, Order::kAcquire)) state = VoidState::kBack;
    return state == VoidState::kBack;
}

void DispatchLane::begin_void(uint32_t rank, int32_t flag) {
    end_void(rank);
    if (flag == 0) return;
    voids_[rank] = {VoidState::kOpen, flag};
    ++num_voids_;
}

void DispatchLane::end_void(uint32_t rank) {
    if (voids_[rank].state != VoidState::kNone) --num_voids_;
    voids_[rank] = {};
}

void DispatchLane::assert_may_store_to(uint32_t rank) {
    AFD_ASSERT(
        may_store_to(rank),
        "micro-batch %u: rank %u has not acknowledged round %d, which was voided there (R12)",
        micro_batch_,
        rank,
        voids_[rank].flag);
}

void DispatchLane::use(ExpertReplica target, uint32_t token_idx, uint32_t k) {
    occupy(token_idx, k, target.rank);
    has_rows_[target.rank] = 1;
    ids_of(target.rank)[size_t{token_idx} * selected_expert_num_ + k] = target.local_id;
}

void DispatchLane::offer(uint32_t token_idx,
                         uint32_t num_slots,
                         std::span<const std::byte> row,
                         uint32_t left_out) {
    for (uint32_t k = 0; k < num_slots; ++k) occupy(token_idx, k, kAnyRank);
    has_offers_ = true;
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        if (is_left_out(left_out, rank)) continue;
        assert_may_store_to(rank);
        // Slot 0 alone carries the row and the mark; the other slots of the token stay masked until
        // a rank answers them.
        has_rows_[rank] = 1;
        ids_of(rank)[size_t{token_idx} * selected_expert_num_] = offered_id(left_out);
        put_row(rank, token_idx, 0, row);
    }
}

int32_t DispatchLane::publish(DispatchMode mode) {
    AFD_ASSERT(is_storing_, "micro-batch %u: publish() without begin()", micro_batch_);
    published_ranks_.clear();
    for (uint32_t rank = 0; rank < num_ranks_; ++rank) {
        const bool is_asked = mode == DispatchMode::kSync && may_store_to(rank);
        if (is_asked || has_rows_[rank] != 0) published_ranks_.push_back(rank);
    }
    // Here and not in begin(): which words the round uses is known only now, and may_store() has
    // made them still (R1).
    round_ = choose_round(round_, published_ranks_.size() + slots_.size(), [this](int32_t round) {
        return stands(round);
    });
    AFD_CRASH_POINT("dispatch.rows_stored");
    for (const uint32_t rank : published_ranks_) {
        end_void(rank);
        transport_->publish(rank, micro_batch_, layer_id_, ids_of(rank), round_);
        AFD_CRASH_POINT("dispatch.published_to_a_rank");
    }
    // A new round begins to wait from the start. num_taken_over_ stays: R10 is over once in the
    // life of a process.
    num_acknowledged_ = 0;
    num_decided_ = 0;
    was_refused_ = false;
    is_storing_ = false;
    was_published_ = true;
    return round_;
}

RoundState DispatchLane::poll() {
    if (!was_published_) return RoundState::kIdle;
    const int32_t* flags = transport_->result_flags(micro_batch_);
    for (; num_decided_ < slots_.size(); ++num_decided_) {
        const int32_t flag = observe(flags[slots_[num_decided_].index], Order::kAcquire);
        // A rank that refuses offered tokens marks no slots, so a slot that stays silent is asked
        // about at the acknowledgements before the round counts as pending.
        if (!carries_round(flag, round_)) {
            return is_refused() ? RoundState::kRefused : RoundState::kPending;
        }
        was_refused_ = was_refused_ || flag != round_;
    }
    return was_refused_ ? RoundState::kRefused : RoundState::kReady;
}

// Not may_store(): that one remembers what it saw, with acquire loads. The look before sleeping has
// to be seq_cst at every word that is still open (R9).
bool DispatchLane::acknowledged(Order order) const {
    for (uint32_t rank = num_taken_over_; rank < num_ranks_; ++rank) {
        if (!is_taken_over(rank, order)) return false;
    }
    for (size_t i = num_acknowledged_; i < published_ranks_.size(); ++i) {
        if (!is_done_with(published_ranks_[i], order)) return false;
    }
    return asked_rank_ == kAnyRank;
}

bool DispatchLane::is_acknowledged(uint32_t rank, int32_t round, Order order) const {
    return carries_round(transport_->acknowledged(rank, micro_batch_, order), round);
}

// R10: what stands there is a predecessor's, so it is read.
bool DispatchLane::is_taken_over(uint32_t rank, Order order) const {
    return is_let_go(rank, transport_->descriptor_flag(rank, micro_batch_), order);
}

// What stands there is this lane's own, unless a process that may write the rank's window has
// spoilt it. Then the rank never sees the round, and is done with the lane when it has acknowledged
// what it found instead.
bool DispatchLane::is_done_with(uint32_t rank, Order order) const {
    if (is_let_go(rank, round_, order)) return true;
    return transport_->descriptor_flag(rank, micro_batch_) != round_ && is_taken_over(rank, order);
}

// One question at a time: when it is asked every rank whose round is voided is lost, so that the
// placement is whole without all of them. Of two that are on their way the first rank might be back
// when the second is lost, and lost again when its answer comes.
std::optional<int32_t> DispatchLane::voidable(uint32_t rank) const {
    const int32_t round = transport_->descriptor_flag(rank, micro_batch_);
    if (transport_->can_fence() || asked_rank_ != kAnyRank || round < 1 ||
        is_let_go(rank, round, Order::kAcquire)) {
        return std::nullopt;
    }
    return round;
}

bool DispatchLane::fence(uint32_t rank) {
    const int32_t flag = transport_->descriptor_flag(rank, micro_batch_);
    if (!transport_->can_fence() || is_let_go(rank, flag, Order::kAcquire)) return false;
    transport_->fence(rank, micro_batch_);
    begin_void(rank, flag);
    return true;
}

void DispatchLane::ask_void(uint32_t rank, int32_t round) {
    AFD_ASSERT(!is_storing_ && asked_rank_ == kAnyRank && rank < num_ranks_ && round > 0,
               "micro-batch %u: round %d of rank %u is not to be voided",
               micro_batch_,
               round,
               rank);
    asked_rank_ = rank;
    asked_round_ = round;
}

void DispatchLane::answer_void(uint32_t rank, int32_t round, bool is_granted) {
    if (rank != asked_rank_ || round != asked_round_) return;
    asked_rank_ = kAnyRank;
    if (is_granted) begin_void(rank, round);
}

bool DispatchLane::is_voided() const {
    if (!was_published_) return false;
    const bool is_any_void = std::ranges::any_of(
        published_ranks_, [this](uint32_t rank) { return is_void_at(rank, round_); });
    const int32_t* flags = transport_->result_flags(micro_batch_);
    for (size_t i = num_decided_; is_any_void && i < slots_.size(); ++i) {
        const uint32_t rank = slots_[i].rank;
        if (rank != kAnyRank && !is_void_at(rank, round_)) continue;
        if (!carries_round(observe(flags[slots_[i].index], Order::kAcquire), round_)) return true;
    }
    return false;
}

// In the order in which the lane has to go through them: the predecessor's rounds, results, then
// acknowledgements. The first that is missing is the one to report.
std::optional<WaitInfo> DispatchLane::wait_info() const {
    const auto wait = [this](WaitKind kind, uint32_t rank, int32_t seen, int32_t expected) {
        return WaitInfo{kind,
                        static_cast<int32_t>(rank),
                        static_cast<int32_t>(micro_batch_),
                        layer_id_,
                        seen,
                        expected};
    };
    const auto seen_of = [this](uint32_t rank) {
        return transport_->acknowledged(rank, micro_batch_, Order::kAcquire);
    };
    for (uint32_t rank = num_taken_over_; rank < num_ranks_; ++rank) {
        const int32_t left = transport_->descriptor_flag(rank, micro_batch_);
        const int32_t seen = seen_of(rank);
        if (!is_let_go(rank, left, Order::kAcquire)) {
            return wait(WaitKind::kTakeover, rank, seen, left);
        }
    }
    const int32_t* flags = transport_->result_flags(micro_batch_);
    for (size_t i = num_decided_; was_published_ && i < slots_.size(); ++i) {
        const int32_t seen = observe(flags[slots_[i].index], Order::kAcquire);
        if (!carries_round(seen, round_)) {
            return wait(WaitKind::kResults, waits_for(slots_[i]), seen, round_);
        }
    }
    for (size_t i = num_acknowledged_; i < published_ranks_.size(); ++i) {
        const uint32_t rank = published_ranks_[i];
        if (!is_done_with(rank, Order::kAcquire)) {
            return wait(WaitKind::kAcknowledged, rank, seen_of(rank), round_);
        }
    }
    return std::nullopt;
}

bool DispatchLane::acknowledged_by(uint32_t rank, Order order) const {
    return is_acknowledged(rank, round_, order);
}

// Whether a rank refused the tokens offered to it: it cannot know which result slots are its own.
bool DispatchLane::is_refused() const {
    return has_offers_ &&
           std::any_of(published_ranks_.begin(), published_ranks_.end(), [this](uint32_t rank) {
               return transport_->acknowledged(rank, micro_batch_, Order::kAcquire) ==
                      refused_mark(round_);
           });
}

// Who may still answer a slot: of an offered token the first rank that has not let go of it.
uint32_t DispatchLane::waits_for(const Slot& slot) const {
    if (slot.rank != kAnyRank) return slot.rank;
    for (const uint32_t rank : published_ranks_) {
        if (!is_let_go(rank, round_, Order::kAcquire)) return rank;
    }
    return published_ranks_.front();
}

std::span<int32_t> DispatchLane::ids_of(uint32_t rank) {
    return {ids_.data() + rank * slots_per_rank_, slots_per_rank_};
}

// Whether a word of the round in work carries this number (R1).
bool DispatchLane::stands(int32_t round) const {
    for (const uint32_t rank : published_ranks_) {
        if (transport_->descriptor_flag(rank, micro_batch_) == round) return true;
    }
    const int32_t* flags = transport_->result_flags(micro_batch_);
    return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
        return carries_round(observe(flags[slot.index], Order::kAcquire), round);
    });
}

}  // namespace afd::schedule
