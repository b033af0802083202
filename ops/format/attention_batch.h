// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionBatch: the tokens of one attention call, and which slots of a paged cache each of them
// writes and reads. What a slot holds is the business of the kind of attention (for MLA
// ops/format/latent_cache.h): a cache is num_blocks · kAttentionBlock slots, slot
// block · kAttentionBlock + offset. Slots that no token's table and position reach have no
// influence; of a block that one reaches all may be read.

#include <cstddef>
#include <cstdint>

namespace afd::ops {

// Positions of one cache block, and of one step of the online softmax. Blocks start at multiples
// of it in absolute positions, so a token's arithmetic does not depend on batch or chunk.
inline constexpr size_t kAttentionBlock = 64;

// In any order and of any sequences. A token attends to positions 0 ... positions[t] of its
// sequence, its own included (the same call writes it first).
struct AttentionBatch {
    size_t num_tokens = 0;
    const int32_t* positions = nullptr;            // [num_tokens], absolute.
    const int64_t* cache_index = nullptr;          // [num_tokens] slot to write; -1 writes nothing.
    const int32_t* const* block_tables = nullptr;  // [num_tokens]: its sequence's blocks, at least
                                                   // positions[t] / kAttentionBlock + 1 entries.
};

}  // namespace afd::ops
