// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_phase/two_phase_receiver.h"

#include <algorithm>
#include <cstring>

#include "proto/crash_point.h"
#include "proto/failure.h"
#include "schedule/layout/round.h"

namespace afd::schedule {
namespace {

Error bad_offer(const std::string& field, int64_t value, const std::string& allowed) {
    return invalid_argument("two-phase offer: {} is {}; it must be {}",
                            with(field, value, allowed));
}

uint32_t blocks_of(int32_t word, uint32_t num_blocks) {
    // A wild word reads as "nothing yet". The rank goes on with others, and the session's own
    // deadline ends the round.
    return word >= 0 && static_cast<uint32_t>(word) <= num_blocks ? static_cast<uint32_t>(word) : 0;
}

}  // namespace

TwoPhaseReceiver::TwoPhaseReceiver(TwoPhaseReturnTransport& transport,
                                   const ExpertPlacement& placement,
                                   const Limits& limits)
    : transport_(&transport), placement_(&placement), limits_(limits) {
    AFD_ASSERT(limits.num_experts <= transport.layout().num_experts,
               "%u experts of %u",
               limits.num_experts,
               transport.layout().num_experts);
}

int32_t TwoPhaseReceiver::open_round(uint32_t session, Order order) const {
    const int32_t offer = observe(peer(session).offer, order);
    return offer == observe_own(own(session).acknowledged) ? 0 : offer;
}

int32_t TwoPhaseReceiver::acknowledged(uint32_t session) const {
    return observe_own(own(session).acknowledged);
}

bool TwoPhaseReceiver::is_closed(uint32_t session, int32_t round, Order order) const {
    const TwoPhaseSessionWords& words = peer(session);
    return observe(words.closed, order) == round || observe(words.offer, order) != round;
}

int32_t TwoPhaseReceiver::granted(uint32_t session, int32_t round) const {
    const int32_t granted = observe_own(own(session).granted);
    // The word may still be that of the round before, which answered another offer.
    return carries_round(granted, round) ? granted : 0;
}

// Counts of experts that the rank holds, and not more rows than a call can have.
Result<> TwoPhaseReceiver::check_counts(const TwoPhaseOffer& offer, uint64_t& num_rows) const {
    num_rows = 0;
    for (size_t expert = 0; expert < offer.counts.size(); ++expert) {
        const int32_t count = offer.counts[expert];
        if (count < 0) return bad_offer("a count", count, "0 or more");
        if (count > 0 && !placement_->holds(rank(), offer.layer_id, static_cast<int32_t>(expert))) {
            return bad_offer(fmt::format("the local expert of {} rows", count),
                             static_cast<int64_t>(expert),
                             fmt::format("one that the rank holds in layer {}", offer.layer_id));
        }
        // At most num_experts · 2^31: no wrap in 64 bits.
        num_rows += static_cast<uint32_t>(count);
    }
    if (num_rows <= limits_.call.num_rows()) return {};
    return bad_offer("the sum of the counts",
                     static_cast<int64_t>(num_rows),
                     fmt::format("0 to {}", limits_.call.num_rows()));
}

Result<> TwoPhaseReceiver::copy_offer(uint32_t session, TwoPhaseOffer& offer) const {
    // Each word once, and then the copies only (R2): the session may close the round meanwhile, and
    // store what it likes. All of it came with the offer that open_round() observed.
    const TwoPhaseSessionWords& shared = peer(session);
    const int32_t layer_id = load_once(shared.layer_id);
    const int32_t num_blocks = load_once(shared.num_blocks);
    const int32_t block_rows_max = load_once(shared.block_rows_max);
    const void* table = transport_->mirrored_table(session);
    const auto* counts = static_cast<const int32_t*>(table);
    offer.counts.resize(limits_.num_experts);
    for (size_t expert = 0; expert < offer.counts.size(); ++expert) {
        offer.counts[expert] = load_once(counts[expert]);
    }
    if (layer_id < 0 || static_cast<uint32_t>(layer_id) >= placement_->num_layers()) {
        return bad_offer("layer_id", layer_id, fmt::format("below {}", placement_->num_layers()));
    }
    offer.layer_id = layer_id;
    uint64_t num_rows = 0;
    AFD_TRY(check_counts(offer, num_rows));
    // Both size the segments, so a session may not ask for more than a call could fill.
    const auto blocks = static_cast<int64_t>(limits_.call.num_blocks());
    if (num_blocks < 1 || num_blocks > blocks) {
        return bad_offer("num_blocks", num_blocks, fmt::format("1 to {}", blocks));
    }
    const uint64_t rows = std::min(num_rows, limits_.call.block_rows());
    if (block_rows_max < 0 || static_cast<uint64_t>(block_rows_max) > rows) {
        return bad_offer("block_rows_max", block_rows_max, fmt::format("0 to {}", rows));
    }
    offer.num_blocks = static_cast<uint32_t>(num_blocks);
    offer.block_rows_max = static_cast<uint32_t>(block_rows_max);
    return {};
}

uint32_t TwoPhaseReceiver::sent(uint32_t session, uint32_t num_blocks, Order order) const {
    return blocks_of(observe(peer(session).sent, order), num_blocks);
}

uint32_t TwoPhaseReceiver::combined(uint32_t session, uint32_t num_blocks, Order order) const {
    return blocks_of(observe(peer(session).combined, order), num_blocks);
}

Result<uint32_t> TwoPhaseReceiver::copy_returned(uint32_t session, uint32_t num_blocks) const {
    const int32_t returned = observe_own(own(session).returned);
    // What was not sent cannot have been returned. `sent` is at most num_blocks.
    const uint32_t most = sent(session, num_blocks, Order::kAcquire);
    if (returned >= 0 && static_cast<uint32_t>(returned) <= most) {
        return static_cast<uint32_t>(returned);
    }
    return data_loss("two-phase round of session {}: returned is {}; it must be 0 to {}",
                     with(session, returned, most));
}

void TwoPhaseReceiver::grant(uint32_t session, int32_t round, std::span<const int64_t> grants) {
    AFD_ASSERT(grants.size() == limits_.num_experts, "%zu grants", grants.size());
    // Before the grant: a session that sees the round granted must not find the blocks of an older
    // one returned.
    publish_release(own(session).returned, 0);
    std::memcpy(transport_->own_table(session), grants.data(), grants.size_bytes());
    AFD_CRASH_POINT("grant.table_stored");
    transport_->publish(session, &TwoPhaseRankWords::granted, round, grants.size_bytes());
    AFD_CRASH_POINT("grant.published");
}

void TwoPhaseReceiver::refuse(uint32_t session, int32_t round) {
    transport_->publish(session, &TwoPhaseRankWords::granted, refused_mark(round));
    AFD_CRASH_POINT("refuse.round_marked");
}

ExecutionLog TwoPhaseReceiver::executions(uint32_t session) const {
    return ExecutionLog({&own(session).execution, 1});
}

uint32_t TwoPhaseReceiver::num_unfinished(uint32_t session, int32_t round) const {
    return executions(session).num_unfinished(0, round);
}

void TwoPhaseReceiver::start_block(uint32_t session, int32_t round) {
    executions(session).start(0, round);
    AFD_CRASH_POINT("block.execution_noted");
}

void TwoPhaseReceiver::publish_returned(uint32_t session, uint32_t num_blocks) {
    // Before the word that lets the session go on, as with descriptors (ready_scan.cc).
    executions(session).end(0);
    AFD_CRASH_POINT("block.execution_ended");
    transport_->publish(session, &TwoPhaseRankWords::returned, static_cast<int32_t>(num_blocks));
    AFD_CRASH_POINT("block.returned");
}

void TwoPhaseReceiver::acknowledge(uint32_t session, int32_t round) {
    transport_->publish(session, &TwoPhaseRankWords::acknowledged, round);
    AFD_CRASH_POINT("close.acknowledged");
}

}  // namespace afd::schedule
