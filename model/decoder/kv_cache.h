// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockAllocator and KvCache: the paged cache of compressed keys and values of an attention worker.
//
// A block holds kKvBlockTokens tokens of one sequence in every layer. A sequence's blocks are
// reserved whole at admission (prompt and all tokens it may produce), so a running sequence never
// runs out of cache, and released at its end. Block b covers rows [64 b, 64 b + 64) of every
// layer's cache; token at position p of a sequence lies in row blocks[p / 64] * 64 + p % 64.
//
// Neither is thread-safe; the data thread of an attention worker owns them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/checkpoint/config.h"
#include "ops/format/latent_cache.h"
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

// Row of the flattened cache for `position` of a sequence with these blocks.
inline int64_t cache_row(std::span<const int32_t> blocks, uint32_t position) {
    return int64_t{blocks[position / kKvBlockTokens]} * kKvBlockTokens + position % kKvBlockTokens;
}

class KvCache {
  public:
    // Room for at least `num_tokens` tokens (rounded up to whole blocks). Memory is zero and
    // becomes resident when first used. Errors: kResourceExhausted naming the bytes.
    static Result<KvCache> create(const ModelConfig& config, uint64_t num_tokens);

    // Bytes that one token takes over all layers.
    static uint64_t bytes_per_token(const ModelConfig& config);

    KvCache(KvCache&& other) noexcept;
    KvCache& operator=(KvCache&& other) noexcept;
    ~KvCache();

    uint32_t num_blocks() const { return num_blocks_; }

    // One layer's cache, num_blocks * 64 slots. REQUIRES: layer < num_layers.
    ops::LatentCache layer(uint32_t layer) const;

  private:
    KvCache() = default;

    void* memory_ = nullptr;
    size_t bytes_ = 0;
    uint32_t num_blocks_ = 0;
    size_t ckv_bytes_ = 0;  // Of one layer.
    size_t kr_bytes_ = 0;
};

}  // namespace afd::model
