// SPDX-License-Identifier: Apache-2.0
#pragma once

// PrefixCache: the blocks of a KV cache (kv_cache.h), of which sequences that begin alike share the
// full ones. What a block holds depends on its tokens and those before it only (the contract of
// AttentionBlock), so a shared block has the bits that the sequence would have computed.
//
// An entry is a full block's tokens behind those of its parent. Parents are named by serials, which
// are never used again, and tokens are compared: a hash that collides costs time, and nothing
// else. While its owner computes it an entry is pending: others see that it is on its way. Once it
// is ready its block is never written again, and outlives its owner: blocks that nobody holds
// stay as long as nobody needs the room, and go in the order in which they were given back. A
// sequence gives back its last block first, so that no parent goes before its children.
//
// All memory is made at construction, but for what the callers' vectors need. One thread at a time.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/attention/kv_cache.h"

namespace afd::model {

class PrefixCache {
  public:
    using Serial = uint64_t;
    // The parent of a sequence's first block.
    static constexpr Serial kNoParent = 0;

    struct Found {
        Serial serial;
        int32_t block;
        bool is_ready;
    };

    // `is_on` false: nothing is found and nothing inserted; only blocks are given and taken back.
    PrefixCache(uint32_t num_blocks, bool is_on);

    bool is_on() const { return !buckets_.empty(); }
    uint32_t num_blocks() const { return allocator_.num_blocks(); }
    // Blocks that nobody holds, those with an entry included.
    uint32_t num_free() const { return allocator_.num_free() + num_idle_; }

    // Appends `count` blocks for the caller alone, those without an entry first; false, and nothing
    // changed, when there are not as many free. Allocates only if `blocks` has less capacity than
    // needed.
    bool take(uint64_t count, std::vector<int32_t>& blocks);

    // Gives up the caller's hold on each, and empties `blocks`. Entries that are pending in them
    // are gone. REQUIRES: nobody writes to them any more.
    void release(std::vector<int32_t>& blocks);

    // The entry of these tokens behind `parent`. Shape: tokens [kKvBlockTokens].
    std::optional<Found> find(Serial parent, std::span<const uint32_t> tokens) const;

    // Makes an entry of a block that the caller holds alone; pending, or ready at once.
    // REQUIRES: is_on(), find() has none, and the block has no entry.
    Serial insert(Serial parent, std::span<const uint32_t> tokens, int32_t block, bool is_ready);

    // The block holds what its tokens say. REQUIRES: it has a pending entry.
    void mark_ready(int32_t block);

    // Behind which entry it stands. REQUIRES: it has one itself.
    Serial parent_of(int32_t block) const { return at(block).parent; }

    // A further holder of a ready entry's block.
    void hold(int32_t block);

  private:
    struct Block {
        Serial serial = 0;  // 0: no entry.
        Serial parent = kNoParent;
        uint32_t num_holders = 0;
        bool is_ready = false;
        int32_t next_in_bucket = -1;
        // Of those that nobody holds, in the order in which they go.
        int32_t before = -1;
        int32_t behind = -1;
    };

    Block& at(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
    const Block& at(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }
    std::span<uint32_t> tokens_of(int32_t block);
    std::span<const uint32_t> tokens_of(int32_t block) const;
    size_t bucket_of(Serial parent, std::span<const uint32_t> tokens) const;
    void give_up(int32_t block);
    void erase_entry(int32_t block);
    void evict_oldest();
    void append_idle(int32_t block);
    void remove_idle(int32_t block);
    void free_block(int32_t block);

    BlockAllocator allocator_;  // Blocks without an entry that nobody holds are free in it.
    std::vector<Block> blocks_;
    std::vector<uint32_t> tokens_;  // [num_blocks, kKvBlockTokens]
    std::vector<int32_t> buckets_;  // First block of each; empty: off.
    std::vector<int32_t> scratch_;  // For the allocator.
    Serial next_serial_ = 1;
    uint32_t num_idle_ = 0;
    int32_t oldest_idle_ = -1;
    int32_t newest_idle_ = -1;
};

}  // namespace afd::model
