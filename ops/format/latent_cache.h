// SPDX-License-Identifier: Apache-2.0
#pragma once

// LatentCache: one layer's paged MLA cache, and AttentionBatch: which token reads and writes where.
//
// The cache is the PA_BSND layout: num_slots = num_blocks · kAttentionBlock rows, row
// block · kAttentionBlock + offset; ckv holds the normalised latent, kr the rotated key. Memory
// belongs to the caller. Slots that no token's table and position reach are never read.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/bf16.h"

namespace afd::ops {

// Positions of one cache block, and of one step of the online softmax. Blocks start at multiples
// of it in absolute positions, so a token's arithmetic does not depend on batch or chunk.
inline constexpr size_t kAttentionBlock = 64;

struct LatentCache {
    Bf16* ckv = nullptr;  // [num_slots, kv_lora_rank]
    Bf16* kr = nullptr;   // [num_slots, qk_rope_head_dim]
    size_t num_slots = 0;
};

// The tokens of one call, in any order and of any sequences. A token attends to positions
// 0 ... positions[t] of its sequence, its own included (the prolog of the same call writes it).
struct AttentionBatch {
    size_t num_tokens = 0;
    const int32_t* positions = nullptr;            // [num_tokens], absolute.
    const int64_t* cache_index = nullptr;          // [num_tokens] slot to write; -1 writes nothing.
    const int32_t* const* block_tables = nullptr;  // [num_tokens]: its sequence's blocks, at least
                                                   // positions[t] / kAttentionBlock + 1 entries.
};

}  // namespace afd::ops
