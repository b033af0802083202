// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/sequence_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace afd::daemon {

namespace {

// The tokens of one full block.
std::span<const uint32_t> block_tokens(const Sequence& sequence, uint32_t index) {
    return std::span(sequence.request->tokens)
        .subspan(size_t{index} * model::kKvBlockTokens, model::kKvBlockTokens);
}

// Positions for which room is reserved at admission: at least those of the tokens that are there.
uint32_t first_reserved(const SequenceRequest& request) {
    if (request.reserved_tokens == 0) return request.max_total_tokens;
    return std::min(
        request.max_total_tokens,
        std::max(request.reserved_tokens, static_cast<uint32_t>(request.tokens.size())));
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
    // If a prompt reports logprobs, every position of it has to be computed.
    sequence.uses_prefix = blocks_.entries().is_on() && !sequence.request->prompt_logprobs;
    const uint32_t num_reserved = first_reserved(*sequence.request);
    if (!reserve_blocks(sequence, num_reserved)) {
        request = std::move(sequence.request);
        return Error{Code::kResourceExhausted,
                     fmt::format("{} tokens need {} KV blocks, {} of {} are free; raise kv_tokens",
                                 num_reserved,
                                 model::held_blocks(num_reserved, blocks_.window()),
                                 blocks_.num_unreserved(),
                                 blocks_.num_blocks())};
    }
    free_.pop_back();
    active_.push_back(&sequence);
    follow_prefix(sequence);
    return &sequence;
}

bool SequenceTable::fits_alone(const SequenceRequest& request) const {
    return !free_.empty() && !active_.empty() &&
           model::held_blocks(first_reserved(request), blocks_.window()) <= blocks_.num_blocks();
}

// Fields are set one by one: assigning a fresh Sequence would free the vectors that were reserved.
void SequenceTable::start_place(Sequence& sequence) {
    std::fill(sequence.layer_positions.begin(), sequence.layer_positions.end(), 0);
    sequence.num_scheduled = 0;
    sequence.num_backed_positions = 0;
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
    sequence.gives_way = false;
    sequence.end_text[0] = '\0';
    sequence.blocked_since_us = 0;
}

// Those of its first `num_tokens` positions; more than these it keeps. False: there are not so
// many.
bool SequenceTable::reserve_blocks(Sequence& sequence, uint32_t num_tokens) {
    const auto reserve = [num_tokens](BlockGroup& blocks, HeldBlocks& held) {
        const uint64_t wanted = model::held_blocks(num_tokens, blocks.window());
        return wanted <= held.num_reserved || blocks.reserve(held, wanted);
    };
    if (!reserve(blocks_, sequence.held)) return false;
    if (!windowed_) return true;
    // They suffice for as many sequences as fit into the others.
    const bool has_room = reserve(*windowed_, sequence.windowed);
    AFD_ASSERT(has_room,
               "%u of %u windowed blocks are reserved",
               windowed_->num_reserved(),
               windowed_->num_blocks());
    return true;
}

// Those of the tokens that are known, as far as there is room for them.
void SequenceTable::take_blocks(Sequence& sequence) {
    is_short_ |= !reserve_blocks(sequence, sequence.num_tokens());
    blocks_.take(sequence.held, sequence.num_tokens());
    size_t num_blocks = sequence.held.table.size();
    if (windowed_) {
        windowed_->take(sequence.windowed, sequence.num_tokens());
        num_blocks = std::min(num_blocks, sequence.windowed.table.size());
    }
    sequence.num_backed_positions = static_cast<uint32_t>(num_blocks) * model::kKvBlockTokens;
}

void SequenceTable::leave_blocks(Sequence& sequence, uint32_t num_computed) {
    blocks_.leave(sequence.held, num_computed);
    if (windowed_) windowed_->leave(sequence.windowed, num_computed);
}

void SequenceTable::move_on(Sequence& sequence) {
    if (sequence.is_ending) return;
    leave_blocks(sequence, sequence.layer_positions.back());
    take_blocks(sequence);
}

Sequence* SequenceTable::make_room() {
    if (!std::exchange(is_short_, false)) return nullptr;
    Sequence* youngest = nullptr;
    bool some_ends = false;
    for (Sequence* sequence : active_) {
        some_ends |= sequence->is_ending;
        if (sequence->is_ending) continue;
        if (!sequence->awaits_prefix) take_blocks(*sequence);
        if (youngest == nullptr ||
            sequence->request->sequence_id > youngest->request->sequence_id) {
            youngest = sequence;
        }
    }
    return is_short_ && !some_ends ? youngest : nullptr;
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
        blocks_.share(sequence.held, ready_[i].found.block);
        sequence.prefix_serial = ready_[i].found.serial;
        ++sequence.num_chained;
        ++sequence.num_shared;
        sequence.num_cached_tokens += model::kKvBlockTokens;
    }
    leave_blocks(sequence, sequence.num_cached_tokens);
    for (uint32_t index = std::max(first, sequence.windowed.num_left);
         windowed_ && index < sequence.num_chained;
         ++index) {
        windowed_->share(sequence.windowed, ready_[index - first].windowed);
    }
    return num_usable == ready_.size();
}

// REQUIRES: what is ready was taken.
bool SequenceTable::is_next_on_its_way(const Sequence& sequence) const {
    const uint32_t num_full = (sequence.num_tokens() - 1) / model::kKvBlockTokens;
    return sequence.num_chained < num_full &&
           blocks_.entries().find(sequence.prefix_serial,
                                  block_tokens(sequence, sequence.num_chained));
}

// REQUIRES: its next block is not on its way.
void SequenceTable::announce(Sequence& sequence) {
    const uint32_t num_full = (sequence.num_tokens() - 1) / model::kKvBlockTokens;
    // What has no block yet is offered when it is computed. Behind an entry that is made here there
    // are none.
    while (sequence.num_chained < std::min<size_t>(num_full, sequence.held.table.size())) {
        sequence.prefix_serial =
            blocks_.entries().insert(sequence.prefix_serial,
                                     block_tokens(sequence, sequence.num_chained),
                                     sequence.held.table[sequence.num_chained],
                                     false);
        ++sequence.num_chained;
    }
}

// As far as the blocks of others go; then it announces its own, or waits, and takes none until it
// knows how many it needs. The last token is always its own to compute: it yields the next one.
// REQUIRES: none of it is scheduled.
void SequenceTable::follow_prefix(Sequence& sequence) {
    const bool has_all = take_ready(sequence);
    const bool may_follow = sequence.uses_prefix && has_all;
    sequence.awaits_prefix = may_follow && is_next_on_its_way(sequence);
    if (sequence.awaits_prefix) return;
    take_blocks(sequence);
    if (may_follow) announce(sequence);
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
