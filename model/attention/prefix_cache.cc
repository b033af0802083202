// SPDX-License-Identifier: Apache-2.0
#include "model/attention/prefix_cache.h"

#include <algorithm>
#include <bit>

#include "proto/check.h"

namespace afd::model {

PrefixCache::PrefixCache(uint32_t num_blocks, bool is_on)
    : allocator_(num_blocks), blocks_(num_blocks) {
    scratch_.reserve(1);
    if (!is_on) return;
    tokens_.resize(size_t{num_blocks} * kKvBlockTokens);
    buckets_.assign(std::bit_ceil(size_t{2} * std::max(num_blocks, 1U)), -1);
}

bool PrefixCache::take(uint64_t count, std::vector<int32_t>& blocks) {
    if (count > num_free()) return false;
    blocks.reserve(blocks.size() + count);
    for (uint64_t i = 0; i < count; ++i) {
        if (allocator_.num_free() == 0) evict_oldest();
        const bool has_one = allocator_.reserve(kKvBlockTokens, scratch_);
        AFD_ASSERT(has_one, "no block, and %u are idle", num_idle_);
        at(scratch_[0]).num_holders = 1;
        blocks.push_back(scratch_[0]);
        scratch_.clear();
    }
    return true;
}

void PrefixCache::release(std::vector<int32_t>& blocks) {
    for (; !blocks.empty(); blocks.pop_back()) give_up(blocks.back());
}

void PrefixCache::give_up(int32_t block) {
    Block& state = at(block);
    // Given back twice, a block would be handed to two sequences, which then read each other's
    // keys.
    AFD_ASSERT(state.num_holders > 0, "nobody holds block %d", block);
    if (--state.num_holders > 0) return;
    if (state.serial != 0 && state.is_ready) {
        append_idle(block);
        return;
    }
    if (state.serial != 0) erase_entry(block);
    free_block(block);
}

std::optional<PrefixCache::Found> PrefixCache::find(Serial parent,
                                                    std::span<const uint32_t> tokens) const {
    if (!is_on()) return std::nullopt;
    for (int32_t block = buckets_[bucket_of(parent, tokens)]; block >= 0;
         block = at(block).next_in_bucket) {
        const Block& state = at(block);
        if (state.parent == parent && std::ranges::equal(tokens_of(block), tokens)) {
            return Found{state.serial, block, state.is_ready};
        }
    }
    return std::nullopt;
}

PrefixCache::Serial PrefixCache::insert(Serial parent,
                                        std::span<const uint32_t> tokens,
                                        int32_t block,
                                        bool is_ready) {
    Block& state = at(block);
    AFD_ASSERT(state.serial == 0 && state.num_holders == 1,
               "block %d has an entry already, or %u holders",
               block,
               state.num_holders);
    std::ranges::copy(tokens, tokens_of(block).begin());
    int32_t& first = buckets_[bucket_of(parent, tokens)];
    state.serial = next_serial_++;
    state.parent = parent;
    state.is_ready = is_ready;
    state.next_in_bucket = first;
    first = block;
    return state.serial;
}

void PrefixCache::mark_ready(int32_t block) {
    AFD_ASSERT(at(block).serial != 0 && !at(block).is_ready, "block %d is not pending", block);
    at(block).is_ready = true;
}

void PrefixCache::hold(int32_t block) {
    Block& state = at(block);
    AFD_ASSERT(state.serial != 0 && state.is_ready, "block %d has no ready entry", block);
    if (state.num_holders++ == 0) remove_idle(block);
}

void PrefixCache::erase_entry(int32_t block) {
    Block& state = at(block);
    int32_t* link = &buckets_[bucket_of(state.parent, tokens_of(block))];
    while (*link != block) link = &at(*link).next_in_bucket;
    *link = state.next_in_bucket;
    state.serial = 0;
    state.is_ready = false;
}

void PrefixCache::evict_oldest() {
    const int32_t block = oldest_idle_;
    remove_idle(block);
    erase_entry(block);
    free_block(block);
}

void PrefixCache::free_block(int32_t block) {
    scratch_.push_back(block);
    allocator_.release(scratch_);
}

void PrefixCache::append_idle(int32_t block) {
    at(block).before = newest_idle_;
    at(block).behind = -1;
    (newest_idle_ < 0 ? oldest_idle_ : at(newest_idle_).behind) = block;
    newest_idle_ = block;
    ++num_idle_;
}

void PrefixCache::remove_idle(int32_t block) {
    const Block& state = at(block);
    (state.before < 0 ? oldest_idle_ : at(state.before).behind) = state.behind;
    (state.behind < 0 ? newest_idle_ : at(state.behind).before) = state.before;
    --num_idle_;
}

std::span<uint32_t> PrefixCache::tokens_of(int32_t block) {
    return std::span(tokens_).subspan(static_cast<size_t>(block) * kKvBlockTokens, kKvBlockTokens);
}

std::span<const uint32_t> PrefixCache::tokens_of(int32_t block) const {
    return std::span(tokens_).subspan(static_cast<size_t>(block) * kKvBlockTokens, kKvBlockTokens);
}

// Multiply and mix, token by token; find() compares, so nothing depends on its quality but time.
size_t PrefixCache::bucket_of(Serial parent, std::span<const uint32_t> tokens) const {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
    uint64_t hash = parent * kMultiplier;
    for (const uint32_t token : tokens) {
        hash = (hash ^ token) * kMultiplier;
        hash ^= hash >> 32;
    }
    return hash & (buckets_.size() - 1);
}

}  // namespace afd::model
