// SPDX-License-Identifier: Apache-2.0
#pragma once

// LatentCache: one layer's paged MLA cache, in the PA_BSND layout: the slots of
// ops/format/attention_batch.h; ckv holds the normalised latent, kr the rotated key. Memory
// belongs to the caller.

#include <cstddef>

#include "ops/tensor/bf16.h"

namespace afd::ops {

struct LatentCache {
    Bf16* ckv = nullptr;  // [num_slots, kv_lora_rank]
    Bf16* kr = nullptr;   // [num_slots, qk_rope_head_dim]
    size_t num_slots = 0;
};

}  // namespace afd::ops
