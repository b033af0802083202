// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockGroup: the KV blocks of those layers of a model that see equally far: who holds them, and
// how a sequence exchanges what its window has left for new ones.
//
// A sequence reserves as many as it holds at a time (model::held_blocks), without a window those of
// every position it may reach; so one that was admitted never waits for memory in the middle, and
// nobody has to be thrown out. Data thread only.

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

    // Takes up to as many as a sequence of max_total_tokens holds at a time. False, and nothing
    // changed: there are not as many. Never where it was true for the sequence before.
    bool take_more(HeldBlocks& held, uint32_t max_total_tokens);

    // Puts a ready entry's block into the table, instead of its own or behind the last.
    // REQUIRES: num_left <= index <= table.size().
    void share(HeldBlocks& held, uint32_t index, int32_t block);

    // Gives up all blocks, and empties the table.
    void release(HeldBlocks& held);

    model::PrefixCache& entries() { return blocks_; }
    uint32_t num_blocks() const { return blocks_.num_blocks(); }
    uint32_t num_free() const { return blocks_.num_free(); }
    // Held by sequences; not those that are kept for sequences to come.
    uint32_t num_used() const { return num_blocks() - num_free(); }
    uint32_t window() const { return window_; }

  private:
    model::PrefixCache blocks_;
    std::vector<int32_t> returned_;  // Scratch.
    uint32_t window_;
};

}  // namespace afd::daemon
