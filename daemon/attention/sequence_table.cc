// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/sequence_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace afd::daemon {

namespace {

// The tokens of one full block.
std::span<const uint32_t> block_tokens(const Sequence& sequence, uint32_t index) {
    return std::span(sequence.request->tokens)
        .subspan(size_t{index} * model::kKvBlockTokens, model::kKvBlockTokens);
}

}  // namespace

SequenceTable::SequenceTable(uint32_t num_places,
                             uint32_t num_layers,
                             uint32_t num_kv_blocks,
                             uint32_t tokens_max,
                             bool has_prefix_cache,
                             uint32_t window,
                             const WindowedBlocks& windowed)
    : places_(num_places), blocks_(num_kv_blocks, has_prefix_cache, window) {
    if (windowed.num_blocks > 0) {
        windowed_.emplace(windowed.num_blocks, has_prefix_cache, windowed.window);
    }
    free_.reserve(num_places);
    active_.reserve(num_places);
    const uint64_t blocks_max = model::BlockAllocator::blocks_for(tokens_max);
    ready_.reserve(has_prefix_cache ? blocks_max : 0);
    for (Sequence& place : places_) {
        place.held.table.reserve(blocks_max);
        if (windowed_) place.windowed.table.reserve(blocks_max);
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
    sequence.request = std::move(request);
    start_place(sequence);
    // Of a prompt that reports logprobs every position has to be computed.
    sequence.uses_prefix = blocks_.entries().is_on() && !sequence.request->prompt_logprobs;
    if (!take_blocks(sequence)) {
        request = std::move(sequence.request);
        return Error{Code::kResourceExhausted,
                     fmt::format("{} tokens need {} KV blocks, {} of {} are free; raise kv_tokens",
                                 request->max_total_tokens,
                                 model::held_blocks(request->max_total_tokens, blocks_.window()),
                                 blocks_.num_free(),
                                 blocks_.num_blocks())};
    }
    free_.pop_back();
    active_.push_back(&sequence);
    follow_prefix(sequence);
    return &sequence;
}

// Fields are set one by one: assigning a fresh Sequence would free the vectors that were reserved.
void SequenceTable::start_place(Sequence& sequence) {
    std::fill(sequence.layer_positions.begin(), sequence.layer_positions.end(), 0);
    sequence.num_scheduled = 0;
    sequence.num_places = UINT32_MAX;
    sequence.prefix_serial = model::PrefixCache::kNoParent;
    sequence.num_chained = 0;
    sequence.num_shared = 0;
    sequence.num_cached_tokens = 0;
    sequence.awaits_prefix = false;
    sequence.num_in_flight = 0;
    sequence.is_started = false;
    sequence.is_in_long_lane = false;
    sequence.avoids_long_lane = false;
    sequence.is_ending = false;
    sequence.end_code = Code::kOk;
    sequence.is_stopped = false;
    sequence.end_text[0] = '\0';
    sequence.blocked_since_us = 0;
}

// False: there are not as many; then it holds none.
bool SequenceTable::take_blocks(Sequence& sequence) {
    // What is ready is held first, so that the room for the rest is not made of it.
    take_ready(sequence);
    if (take_more_blocks(sequence)) return true;
    release_blocks(sequence);
    return false;
}

void SequenceTable::leave_blocks(Sequence& sequence, uint32_t num_computed) {
    blocks_.leave(sequence.held, num_computed);
    if (windowed_) windowed_->leave(sequence.windowed, num_computed);
}

// Up to as many as it holds at a time, or for its last token. False: there are not as many.
bool SequenceTable::take_more_blocks(Sequence& sequence) {
    const uint32_t tokens = sequence.request->max_total_tokens;
    if (!blocks_.take_more(sequence.held, tokens)) return false;
    if (windowed_ && !windowed_->take_more(sequence.windowed, tokens)) return false;
    const size_t num_blocks =
        std::min(sequence.held.table.size(),
                 windowed_ ? sequence.windowed.table.size() : sequence.held.table.size());
    sequence.num_places = num_blocks == model::BlockAllocator::blocks_for(tokens)
                              ? UINT32_MAX
                              : static_cast<uint32_t>(num_blocks) * model::kKvBlockTokens;
    return true;
}

void SequenceTable::move_window(Sequence& sequence) {
    if ((blocks_.window() == 0 && !windowed_) || sequence.is_ending) return;
    leave_blocks(sequence, sequence.layer_positions.back());
    // Whatever others hold, it never holds more than it reserved.
    const bool has_room = take_more_blocks(sequence);
    AFD_ASSERT(has_room,
               "%u blocks are free, %u windowed",
               blocks_.num_free(),
               windowed_ ? windowed_->num_free() : 0);
}

void SequenceTable::release_blocks(Sequence& sequence) {
    blocks_.release(sequence.held);
    if (windowed_) windowed_->release(sequence.windowed);
}

// The blocks behind those that it has which are ready. Returns how many of them it can take: its
// next token must see no windowed block that is gone.
size_t SequenceTable::find_ready(const Sequence& sequence) {
    const uint32_t num_full = (sequence.num_tokens() - 1) / model::kKvBlockTokens;
    ready_.clear();
    size_t num_usable = 0;
    uint32_t end_of_gone = 0;
    model::PrefixCache::Serial parent = sequence.prefix_serial;
    for (uint32_t index = sequence.num_chained; index < num_full; ++index) {
        const auto tokens = block_tokens(sequence, index);
        const auto found = blocks_.entries().find(parent, tokens);
        if (!found || !found->is_ready) break;
        Shared& shared = ready_.emplace_back(Shared{.found = *found});
        uint32_t first_seen = end_of_gone;
        if (windowed_) {
            const auto windowed = windowed_->entries().find(parent, tokens);
            if (windowed) shared.windowed = windowed->block;
            if (!windowed) end_of_gone = index + 1;
            first_seen = windowed_->first_seen((index + 1) * model::kKvBlockTokens);
        }
        if (end_of_gone <= first_seen) num_usable = ready_.size();
        parent = found->serial;
    }
    return num_usable;
}

// False: there is more that is ready, but of no use.
bool SequenceTable::take_ready(Sequence& sequence) {
    if (!sequence.uses_prefix) return true;
    const size_t num_usable = find_ready(sequence);
    const uint32_t first = sequence.num_chained;
    for (size_t i = 0; i < num_usable; ++i) {
        blocks_.share(sequence.held, sequence.num_chained, ready_[i].found.block);
        sequence.prefix_serial = ready_[i].found.serial;
        ++sequence.num_chained;
        ++sequence.num_shared;
        sequence.num_cached_tokens += model::kKvBlockTokens;
    }
    leave_blocks(sequence, sequence.num_cached_tokens);
    for (uint32_t index = std::max(first, sequence.windowed.num_left);
         windowed_ && index < sequence.num_chained;
         ++index) {
        windowed_->share(sequence.windowed, index, ready_[index - first].windowed);
    }
    return num_usable == ready_.size();
}

// REQUIRES: what is ready was taken.
void SequenceTable::announce_or_wait(Sequence& sequence) {
    const uint32_t num_full = (sequence.num_tokens() - 1) / model::kKvBlockTokens;
    // What has no block yet is offered when it is computed.
    while (sequence.num_chained < std::min<size_t>(num_full, sequence.held.table.size())) {
        const auto tokens = block_tokens(sequence, sequence.num_chained);
        if (blocks_.entries().find(sequence.prefix_serial, tokens)) {
            sequence.awaits_prefix = true;
            return;
        }
        sequence.prefix_serial = blocks_.entries().insert(
            sequence.prefix_serial, tokens, sequence.held.table[sequence.num_chained], false);
        ++sequence.num_chained;
    }
}

// As far as the blocks of others go; then it announces its own, or waits. The last token is always
// its own to compute: it yields the next one. REQUIRES: none of it is scheduled.
void SequenceTable::follow_prefix(Sequence& sequence) {
    sequence.awaits_prefix = false;
    const bool has_all = take_ready(sequence);
    const bool has_room = take_more_blocks(sequence);
    AFD_ASSERT(has_room, "%u blocks are free", blocks_.num_free());
    if (sequence.uses_prefix && has_all) announce_or_wait(sequence);
    if (sequence.awaits_prefix) return;
    sequence.num_scheduled = sequence.num_cached_tokens;
    std::fill(sequence.layer_positions.begin(),
              sequence.layer_positions.end(),
              sequence.num_cached_tokens);
}

void SequenceTable::look_for_prefixes() {
    for (Sequence* sequence : active_) {
        if (sequence->awaits_prefix && !sequence->is_ending) follow_prefix(*sequence);
    }
}

void SequenceTable::offer_computed(Sequence& sequence) {
    const bool is_whole = !sequence.is_ending || sequence.end_code == Code::kOk;
    if (!sequence.uses_prefix || !is_whole) return;
    model::PrefixCache& entries = blocks_.entries();
    const uint32_t num_full = sequence.layer_positions.back() / model::kKvBlockTokens;
    for (; sequence.num_shared < num_full; ++sequence.num_shared) {
        const uint32_t index = sequence.num_shared;
        const int32_t block = sequence.held.table[index];
        if (index < sequence.num_chained) {
            entries.mark_ready(block);
            offer_windowed(sequence, index, entries.parent_of(block));
            continue;
        }
        // Where another sequence has produced the same, its entry stays, and leads on.
        const auto tokens = block_tokens(sequence, index);
        const auto parent = sequence.prefix_serial;
        const auto found = entries.find(parent, tokens);
        sequence.prefix_serial =
            found ? found->serial : entries.insert(parent, tokens, block, true);
        ++sequence.num_chained;
        offer_windowed(sequence, index, parent);
    }
}

void SequenceTable::offer_windowed(Sequence& sequence,
                                   uint32_t index,
                                   model::PrefixCache::Serial parent) {
    if (!windowed_) return;
    const auto tokens = block_tokens(sequence, index);
    if (windowed_->entries().find(parent, tokens)) return;
    windowed_->entries().insert(parent, tokens, sequence.windowed.table[index], true);
}

std::unique_ptr<SequenceRequest> SequenceTable::release(Sequence& sequence) {
    AFD_ASSERT(
        sequence.num_in_flight == 0, "%u micro-batches hold rows of it", sequence.num_in_flight);
    release_blocks(sequence);
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
