// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockGroup: the KV blocks of those layers of a model that see equally far: who may hold how many,
// who holds which, and how a sequence exchanges what its window has left for new ones.
//
// A sequence reserves by number and takes by need: a block is its own from the first token on that
// stands there. Until then it may keep the prefix of a sequence to come, which goes only when there
// is no other block.
//
// Invariants: (1) All together have reserved at most as many blocks as there are. (2) A sequence
// that takes one holds at most what it has reserved. So take() never finds too few, whatever came
// before it: a block that several hold counts for each of them, and is gone only once.
// Data thread only.

#include <cstdint>
#include <vector>

#include "daemon/attention/held_blocks.h"
#include "model/attention/prefix_cache.h"

namespace afd::daemon {

class BlockGroup {
  public:
    // `window`: positions that a token sees, its own included; 0: all.
    BlockGroup(uint32_t num_blocks, bool has_prefix_cache, uint32_t window);

    // The first block that a token behind `num_computed` sees.
    uint32_t first_seen(uint32_t num_computed) const;

    // Gives up the blocks before first_seen(num_computed). Where the table ends before that, it
    // grows by entries that nobody reads.
    void leave(HeldBlocks& held, uint32_t num_computed);

    // From now on it may hold so many at a time. False, and nothing changed: others have reserved
    // too many for that.
    bool reserve(HeldBlocks& held, uint64_t num_blocks);

    // Takes the blocks of its first `num_tokens` positions, as far as it has reserved them.
    // Allocates only if the table has less capacity than needed.
    void take(HeldBlocks& held, uint32_t num_tokens);

    // Puts a ready entry's block behind the last of the table. What it holds beyond its reservation
    // then, leave() gives up before it takes any.
    void share(HeldBlocks& held, int32_t block);

    // Gives up all blocks and the reservation, and empties the table.
    void release(HeldBlocks& held);

    model::PrefixCache& entries() { return blocks_; }
    const model::PrefixCache& entries() const { return blocks_; }
    uint32_t num_blocks() const { return blocks_.num_blocks(); }
    uint32_t num_reserved() const { return num_reserved_; }
    uint32_t num_unreserved() const { return num_blocks() - num_reserved_; }
    // Held by sequences; not those that are kept for sequences to come.
    uint32_t num_used() const { return num_blocks() - blocks_.num_free(); }
    uint32_t window() const { return window_; }

  private:
    model::PrefixCache blocks_;
    std::vector<int32_t> returned_;  // Scratch.
    uint32_t window_;
    uint32_t num_reserved_ = 0;  // By all sequences.
};

}  // namespace afd::daemon
