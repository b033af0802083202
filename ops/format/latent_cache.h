// SPDX-License-Identifier: Apache-2.0
#pragma once

// LatentCache: one layer's paged MLA cache: the slots of ops/format/attention_batch.h; ckv holds
// the normalised latent, kr the rotated key. Memory belongs to the caller.
//
// bf16 has the PA_BSND layout, two arrays. Otherwise a slot is one row, without padding:
//   int8: latent int8 | rope bf16 | one fp32 scale a tile, the row of mla_prolog_v3 per tile
//         (656 bytes for 512 and 64)
//   fp8:  latent e4m3 | one fp32 scale a tile | rope bf16
//   int8_channel: latent int8 | rope int8, by the factors of quant_scale_*

#include <cstddef>

#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"

namespace afd::ops {

struct LatentCache {
    Bf16* ckv = nullptr;  // bf16: [num_slots, kv_lora_rank]
    Bf16* kr = nullptr;   // bf16: [num_slots, qk_rope_head_dim]
    size_t num_slots = 0;
    KvDtype dtype = KvDtype::kBf16;
    std::byte* rows = nullptr;               // Otherwise: [num_slots, latent_row_bytes()]
    const float* quant_scale_ckv = nullptr;  // int8_channel: [kv_lora_rank]
    const float* quant_scale_ckr = nullptr;  // [qk_rope_head_dim]
};

// Bytes of a slot.
constexpr size_t latent_row_bytes(KvDtype dtype, size_t latent, size_t rope) {
    if (dtype == KvDtype::kInt8Channel) return latent + rope;
    const size_t latent_bytes =
        dtype == KvDtype::kBf16 ? latent * sizeof(Bf16) : kv_tile_row_bytes(latent);
    return latent_bytes + rope * sizeof(Bf16);
}

static_assert(latent_row_bytes(KvDtype::kInt8, 512, 64) == 656, "the seed's row");

}  // namespace afd::ops
