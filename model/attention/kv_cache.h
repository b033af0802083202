// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockAllocator and KvCache: the paged cache of an attention worker, for any kind of attention: so
// many bytes a token in each layer, whose meaning is the attention block's.
//
// A block holds kKvBlockTokens tokens of one sequence in every layer. A sequence takes a block with
// the first token that stands there, and gives all back at its end; where every layer has a window,
// blocks that the window has left are exchanged for new ones. How many it may take is a matter of
// numbers (daemon/attention/block_group.h), so that it never finds too few. Block b covers
// slots [64 b, 64 b + 64) of every layer's cache; the token at position p of a sequence has slot
// blocks[p / 64] * 64 + p % 64. Where only some layers have a window, these may have fewer slots,
// and a sequence blocks of two kinds, one for them and one for the other layers.
//
// Neither is thread-safe; the data thread of an attention worker owns them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/format/attention_batch.h"
#include "proto/status.h"

namespace afd::model {

// The softmax runs over the same blocks that the cache pages by.
inline constexpr uint32_t kKvBlockTokens = ops::kAttentionBlock;

class BlockAllocator {
  public:
    explicit BlockAllocator(uint32_t num_blocks);

    // How many blocks `num_tokens` tokens need.
    static uint64_t blocks_for(uint64_t num_tokens) {
        return num_tokens / kKvBlockTokens + (num_tokens % kKvBlockTokens != 0 ? 1 : 0);
    }

    // Replaces `blocks` (empty) by the blocks for `num_tokens`; false, and nothing changed, when
    // there are not as many free. Lowest free block first is not promised.
    // Allocates only if `blocks` has less capacity than needed.
    bool reserve(uint64_t num_tokens, std::vector<int32_t>& blocks);

    // Gives the blocks back and empties `blocks`. REQUIRES: they came from reserve().
    void release(std::vector<int32_t>& blocks);

    uint32_t num_blocks() const { return static_cast<uint32_t>(in_use_.size()); }
    uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }

  private:
    std::vector<int32_t> free_;  // Used as a stack.
    std::vector<bool> in_use_;   // Catches a block released twice.
};

// Positions that may be under way beside those of a window: of a longer prompt the rows behind wait
// until the first of them are computed. A few micro-batches.
inline constexpr uint32_t kWindowAhead = 512;

// Most blocks that a sequence of so many tokens holds at a time. `window`: positions that a token
// sees in whatever layer, its own included; 0: all.
inline uint64_t held_blocks(uint64_t num_tokens, uint32_t window) {
    const uint64_t whole = BlockAllocator::blocks_for(num_tokens);
    if (window == 0) return whole;
    // One more, as a window begins in the middle of a block.
    return std::min(whole, BlockAllocator::blocks_for(uint64_t{window} + kWindowAhead) + 1);
}

// Slot of the flattened cache for `position` of a sequence with these blocks.
inline int64_t cache_row(std::span<const int32_t> blocks, uint32_t position) {
    return int64_t{blocks[position / kKvBlockTokens]} * kKvBlockTokens + position % kKvBlockTokens;
}

// What a model needs of a cache.
struct KvShape {
    uint32_t num_layers = 0;
    uint64_t layer_bytes_per_token = 0;  // In one layer.

    // Over all layers.
    uint64_t bytes_per_token() const { return num_layers * layer_bytes_per_token; }
};

// One layer's cache: num_slots · bytes_per_token bytes, of which an attention block makes what it
// wants: a row per slot, or (where it has several arrays) one array behind the other. Arrays of a
// whole number of bytes a slot start at multiples of 64 bytes, since slots come in blocks of 64.
struct KvLayer {
    std::byte* data = nullptr;  // Aligned to 64 bytes.
    uint64_t bytes_per_token = 0;
    size_t num_slots = 0;
};

// The layers that have a window beside others, and how many tokens they have room for.
struct WindowedLayers {
    std::vector<bool> is_windowed;  // [num_layers]; empty: no layer.
    uint64_t num_tokens = 0;
};

class KvCache {
  public:
    // When the kernel is asked for the memory: at once, or by populate(); what is used before that
    // comes with a page fault.
    enum class Memory { kNow, kLater };

    // Room for at least `num_tokens` tokens (rounded up to whole blocks), in the windowed layers
    // for theirs. Memory is zero. Errors: kResourceExhausted naming the bytes.
    static Result<KvCache> create(const KvShape& shape,
                                  uint64_t num_tokens,
                                  const WindowedLayers& windowed = {},
                                  Memory memory = Memory::kNow);

    // Makes the part with this number, kPartBytes of each layer, resident; in the order in which
    // blocks are handed out. May run beside any other use. Returns whether there is a next part.
    bool populate(size_t part) const;
    static constexpr size_t kPartBytes = size_t{2} << 20;

    KvCache(KvCache&& other) noexcept;
    KvCache& operator=(KvCache&& other) noexcept;
    ~KvCache();

    // Of the layers without a window, or of all.
    uint32_t num_blocks() const { return num_blocks_; }
    // Of the windowed layers; 0: there are none.
    uint32_t num_windowed_blocks() const { return num_windowed_blocks_; }
    bool is_windowed(uint32_t layer) const {
        return layer < is_windowed_.size() && is_windowed_[layer];
    }

    // REQUIRES: layer < num_layers.
    KvLayer layer(uint32_t layer) const;

  private:
    KvCache() = default;

    void* memory_ = nullptr;
    size_t bytes_ = 0;
    uint32_t num_blocks_ = 0;
    uint32_t num_windowed_blocks_ = 0;
    std::vector<bool> is_windowed_;
    std::vector<KvLayer> layers_;
};

}  // namespace afd::model
