// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/sequence_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace afd::daemon {

SequenceTable::SequenceTable(uint32_t num_places,
                             uint32_t num_layers,
                             uint32_t num_kv_blocks,
                             uint32_t tokens_max)
    : places_(num_places), blocks_(num_kv_blocks) {
    free_.reserve(num_places);
    active_.reserve(num_places);
    for (Sequence& place : places_) {
        place.block_table.reserve(model::BlockAllocator::blocks_for(tokens_max));
        // One more than layers: the last is the head's.
        place.layer_positions.resize(num_layers + 1);
        free_.push_back(&place);
    }
}

Result<Sequence*> SequenceTable::admit(std::unique_ptr<SequenceRequest>& request) {
    if (free_.empty()) {
        return Error{
            Code::kResourceExhausted,
            fmt::format("{} sequences run here already; raise max_sequences", places_.size())};
    }
    Sequence& sequence = *free_.back();
    // All blocks up to the last possible token: a sequence that was admitted never waits for memory
    // in the middle, and nobody has to be thrown out.
    if (!blocks_.reserve(request->max_total_tokens, sequence.block_table)) {
        return Error{Code::kResourceExhausted,
                     fmt::format("{} tokens need {} KV blocks, {} of {} are free; raise kv_tokens",
                                 request->max_total_tokens,
                                 model::BlockAllocator::blocks_for(request->max_total_tokens),
                                 blocks_.num_free(),
                                 blocks_.num_blocks())};
    }
    free_.pop_back();
    sequence.request = std::move(request);
    // Fields are set one by one: assigning a fresh Sequence would free the vectors that were
    // reserved.
    std::fill(sequence.layer_positions.begin(), sequence.layer_positions.end(), 0);
    sequence.num_scheduled = 0;
    sequence.num_in_flight = 0;
    sequence.is_started = false;
    sequence.is_in_long_lane = false;
    sequence.avoids_long_lane = false;
    sequence.is_ending = false;
    sequence.end_code = Code::kOk;
    sequence.is_stopped = false;
    sequence.end_text[0] = '\0';
    sequence.blocked_since_us = 0;
    active_.push_back(&sequence);
    return &sequence;
}

std::unique_ptr<SequenceRequest> SequenceTable::release(Sequence& sequence) {
    AFD_ASSERT(
        sequence.num_in_flight == 0, "%u micro-batches hold rows of it", sequence.num_in_flight);
    blocks_.release(sequence.block_table);
    active_.erase(std::find(active_.begin(), active_.end(), &sequence));
    free_.push_back(&sequence);
    return std::move(sequence.request);
}

Sequence* SequenceTable::find(uint64_t sequence_id) const {
    const auto found = std::find_if(active_.begin(), active_.end(), [&](const Sequence* sequence) {
        return sequence->request->sequence_id == sequence_id;
    });
    return found == active_.end() ? nullptr : *found;
}

}  // namespace afd::daemon
