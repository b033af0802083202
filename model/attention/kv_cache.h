// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockAllocator and KvCache: the paged cache of an attention worker, for any kind of attention: so
// many bytes a token in each layer, whose meaning is the attention block's.
//
// A block holds kKvBlockTokens tokens of one sequence in every layer. A sequence's blocks are
// reserved whole at admission (prompt and all tokens it may produce), so a running sequence never
// runs out of cache, and released at its end. Block b covers slots [64 b, 64 b + 64) of every
// layer's cache; the token at position p of a sequence has slot blocks[p / 64] * 64 + p % 64.
//
// Neither is thread-safe; the data thread of an attention worker owns them.

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

class KvCache {
  public:
    // Room for at least `num_tokens` tokens (rounded up to whole blocks). Memory is zero and
    // resident. Errors: kResourceExhausted naming the bytes.
    static Result<KvCache> create(const KvShape& shape, uint64_t num_tokens);

    KvCache(KvCache&& other) noexcept;
    KvCache& operator=(KvCache&& other) noexcept;
    ~KvCache();

    uint32_t num_blocks() const { return num_blocks_; }

    // REQUIRES: layer < num_layers.
    KvLayer layer(uint32_t layer) const;

  private:
    KvCache() = default;

    void* memory_ = nullptr;
    size_t bytes_ = 0;
    uint32_t num_blocks_ = 0;
    uint64_t layer_bytes_per_token_ = 0;
};

}  // namespace afd::model
