// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/latent_rows.h"

#include <cstring>

#include "ops/attention/cache_quant.h"
#include "ops/attention/kv_tiles.h"
#include "ops/cpu/kernels.h"
#include "proto/check.h"

namespace afd::ops {

LatentRows::LatentRows(const LatentCache& cache, size_t latent, size_t rope)
    : cache_(cache),
      latent_(latent),
      rope_(rope),
      row_bytes_(latent_row_bytes(cache.dtype, latent, rope)) {
    AFD_DASSERT(cache.dtype != KvDtype::kBf16 && cache.rows != nullptr, "a bf16 cache has arrays");
}

void LatentRows::write_int8(size_t slot, const float* ckv, const Bf16* kr) const {
    std::byte* to = row(slot);
    const size_t rope_bytes = rope_ * sizeof(Bf16);
    encode_int8_tiles(DType::kFp32, ckv, latent_, to, to + latent_ + rope_bytes);
    std::memcpy(to + latent_, kr, rope_bytes);
}

void LatentRows::write_fp8(size_t slot, const Bf16* ckv, const Bf16* kr) const {
    std::byte* to = row(slot);
    encode_kv_row(KvDtype::kFp8, ckv, latent_, to);
    std::memcpy(to + kv_tile_row_bytes(latent_), kr, rope_ * sizeof(Bf16));
}

void LatentRows::write_int8_channels(size_t slot, const float* ckv, const float* kr) const {
    auto* to = reinterpret_cast<int8_t*>(row(slot));
    quantise_with_scales(ckv, latent_, cache_.quant_scale_ckv, 1, to);
    quantise_with_scales(kr, rope_, cache_.quant_scale_ckr, 1, to + latent_);
}

void LatentRows::expand_channels(const std::byte* from, Bf16* ckv, Bf16* kr) const {
    const cpu::Kernels& kernels = cpu::best_kernels();
    const auto* q = reinterpret_cast<const int8_t*>(from);
    kernels.expand_int8_channels(q, cache_.quant_scale_ckv, latent_, ckv);
    kernels.expand_int8_channels(q + latent_, cache_.quant_scale_ckr, rope_, kr);
}

void LatentRows::expand(size_t first, size_t count, Bf16* ckv, Bf16* kr) const {
    if (cache_.dtype == KvDtype::kInt8Channel) {
        for (size_t i = 0; i < count; ++i) {
            expand_channels(row(first + i), ckv + i * latent_, kr + i * rope_);
        }
        return;
    }
    // int8 rows have the rotated key before their scales, fp8 rows behind them.
    const bool is_int8 = cache_.dtype == KvDtype::kInt8;
    const size_t rope_bytes = rope_ * sizeof(Bf16);
    const size_t rope_at = is_int8 ? latent_ : kv_tile_row_bytes(latent_);
    expand_kv_rows(cache_.dtype,
                   {.values = row(first),
                    .scales = row(first) + latent_ + (is_int8 ? rope_bytes : 0),
                    .row_bytes = row_bytes_,
                    .num_rows = count,
                    .count = latent_},
                   ckv);
    for (size_t i = 0; i < count; ++i) {
        std::memcpy(kr + i * rope_, row(first + i) + rope_at, rope_bytes);
    }
}

}  // namespace afd::ops
