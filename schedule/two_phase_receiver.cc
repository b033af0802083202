// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_phase_receiver.h"

#include <cstring>

#include "proto/failure.h"
#include "schedule/round.h"

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
    return observe(peer(session).closed, order) == round;
}

int32_t TwoPhaseReceiver::granted(uint32_t session, int32_t round) const {
    const int32_t granted = observe_own(own(session).granted);
    // The word may still be that of the round before, which answered another offer.
    return carries_round(granted, round) ? granted : 0;
}

Result<> TwoPhaseReceiver::copy_offer(uint32_t session, TwoPhaseOffer& offer) const {
    // Only what is still while the round is open: the session may close it meanwhile.
    const TwoPhaseSessionWords& shared = peer(session);
    struct {
        int32_t layer_id;
        int32_t num_blocks;
        int32_t block_rows_max;
    } words;
    // The three sizes from layer_id on; two_phase_control.h asserts where they lie. The four words
    // before them may change while the round is open, and a plain read of those would be a data
    // race.
    const void* first = reinterpret_cast<const std::byte*>(&shared) + 16;
    std::memcpy(&words, first, sizeof(words));
    offer.counts.resize(limits_.num_experts);
    std::memcpy(offer.counts.data(),
                transport_->mirrored_table(session),
                offer.counts.size() * sizeof(int32_t));
    if (words.layer_id < 0 || static_cast<uint32_t>(words.layer_id) >= placement_->num_layers()) {
        return bad_offer(
            "layer_id", words.layer_id, fmt::format("below {}", placement_->num_layers()));
    }
    uint64_t num_rows = 0;
    for (size_t expert = 0; expert < offer.counts.size(); ++expert) {
        const int32_t count = offer.counts[expert];
        if (count < 0) return bad_offer("a count", count, "0 or more");
        if (count > 0 && !placement_->holds(rank(), words.layer_id, static_cast<int32_t>(expert))) {
            return bad_offer(fmt::format("the local expert of {} rows", count),
                             static_cast<int64_t>(expert),
                             fmt::format("one that the rank holds in layer {}", words.layer_id));
        }
        // At most num_experts · 2^31: no wrap in 64 bits.
        num_rows += static_cast<uint32_t>(count);
    }
    if (words.num_blocks < 1) return bad_offer("num_blocks", words.num_blocks, "1 or more");
    // It sizes the return segment, so a session may not ask for more than its rows could fill.
    if (words.block_rows_max < 0 || static_cast<uint64_t>(words.block_rows_max) > num_rows) {
        return bad_offer("block_rows_max", words.block_rows_max, fmt::format("0 to {}", num_rows));
    }
    offer.layer_id = words.layer_id;
    offer.num_blocks = static_cast<uint32_t>(words.num_blocks);
    offer.block_rows_max = static_cast<uint32_t>(words.block_rows_max);
    const uint64_t bytes = two_phase_sizes(offer, limits_.row_bytes).receive_bytes;
    if (bytes > limits_.receive_bytes_max) {
        return bad_offer("the receive segment's size",
                         static_cast<int64_t>(bytes),
                         fmt::format("at most {} bytes", limits_.receive_bytes_max));
    }
    return {};
}

uint32_t TwoPhaseReceiver::sent(uint32_t session, uint32_t num_blocks, Order order) const {
    return blocks_of(observe(peer(session).sent, order), num_blocks);
}

uint32_t TwoPhaseReceiver::combined(uint32_t session, uint32_t num_blocks, Order order) const {
    return blocks_of(observe(peer(session).combined, order), num_blocks);
}

uint32_t TwoPhaseReceiver::returned(uint32_t session) const {
    return static_cast<uint32_t>(observe_own(own(session).returned));
}

void TwoPhaseReceiver::grant(uint32_t session, int32_t round, std::span<const int64_t> grants) {
    AFD_ASSERT(grants.size() == limits_.num_experts, "%zu grants", grants.size());
    // Before the grant: a session that sees the round granted must not find the blocks of an older
    // one returned.
    publish_release(own(session).returned, 0);
    std::memcpy(transport_->own_table(session), grants.data(), grants.size_bytes());
    transport_->publish(session, &TwoPhaseRankWords::granted, round, grants.size_bytes());
}

void TwoPhaseReceiver::refuse(uint32_t session, int32_t round) {
    transport_->publish(session, &TwoPhaseRankWords::granted, refused_mark(round));
}

ExecutionLog TwoPhaseReceiver::executions(uint32_t session) const {
    return ExecutionLog({&own(session).execution, 1});
}

uint32_t TwoPhaseReceiver::num_unfinished(uint32_t session, int32_t round) const {
    return executions(session).num_unfinished(0, round);
}

void TwoPhaseReceiver::start_block(uint32_t session, int32_t round) {
    executions(session).start(0, round);
}

void TwoPhaseReceiver::publish_returned(uint32_t session, uint32_t num_blocks) {
    // Before the word that lets the session go on, as with descriptors (ready_scan.cc).
    executions(session).end(0);
    transport_->publish(session, &TwoPhaseRankWords::returned, static_cast<int32_t>(num_blocks));
}

void TwoPhaseReceiver::acknowledge(uint32_t session, int32_t round) {
    transport_->publish(session, &TwoPhaseRankWords::acknowledged, round);
}

}  // namespace afd::schedule
