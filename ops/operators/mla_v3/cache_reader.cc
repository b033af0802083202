// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/cache_reader.h"

#include <algorithm>
#include <cstring>

namespace afd::ops {
namespace {

template <typename T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

const float* scales_of(const ConstTensorView& view) {
    return static_cast<const float*>(view.data);
}

// int8 / scale, element i by scales[i · step].
void divide(const std::byte* q, size_t count, const float* scales, size_t step, float* out) {
    for (size_t i = 0; i < count; ++i) {
        // A quotient, since the scale that was given multiplied: a product with its inverse has
        // other bits.
        out[i] = static_cast<float>(load<int8_t>(q + i)) / scales[i * step];
    }
}

void widen(const std::byte* row, size_t count, float* out) {
    for (size_t i = 0; i < count; ++i) out[i] = to_float(load<Bf16>(row + i * sizeof(Bf16)));
}

}  // namespace

CacheReader::CacheReader(const MlaAttentionV3Request& request, const MlaAttentionV3Plan& plan)
    : request_(request), plan_(plan) {}

size_t CacheReader::row_bytes_max() const {
    return std::max(plan_.kv_rows.row_bytes, plan_.kr_rows.row_bytes);
}

void CacheReader::read(size_t row, Bf16* ckv, Bf16* kr) const {
    plan_.kv_rows.load(request_.kv_cache.data, row, ckv);
    plan_.kr_rows.load(request_.kr_cache.data, row, kr);
}

void CacheReader::read(size_t row, float* ckv, float* kr, std::byte* bytes) const {
    const size_t latent = plan_.shape.kv_lora_rank;
    const size_t rope_dim = plan_.shape.qk_rope_head_dim;
    const float* kv_scales = scales_of(request_.quant_scale_ckv);
    plan_.kv_rows.load(request_.kv_cache.data, row, bytes);
    switch (plan_.kv_quant) {
        case KvQuant::kNone:
            widen(bytes, latent, ckv);
            break;
        case KvQuant::kPerTensor:
            divide(bytes, latent, kv_scales, 0, ckv);
            break;
        case KvQuant::kPerChannel:
            divide(bytes, latent, kv_scales, 1, ckv);
            break;
        case KvQuant::kPerTile: {
            const TileRow& tiles = plan_.tile_row;
            for (size_t i = 0; i < latent; ++i) {
                const size_t tile = i / tiles.tile_size;
                const auto scale = load<float>(bytes + tiles.scales_offset() + 4 * tile);
                ckv[i] = static_cast<float>(load<int8_t>(bytes + i)) * scale;
            }
            widen(bytes + tiles.rope_offset(), rope_dim, kr);
            return;
        }
    }
    plan_.kr_rows.load(request_.kr_cache.data, row, bytes);
    if (plan_.kv_quant == KvQuant::kPerChannel) {
        divide(bytes, rope_dim, scales_of(request_.quant_scale_ckr), 1, kr);
        return;
    }
    widen(bytes, rope_dim, kr);
    if (plan_.kv_quant != KvQuant::kPerTensor) return;
    // mla_prolog_v3 multiplied query_rope by the same scale, so that one dequantisation serves both
    // halves of a score.
    for (size_t i = 0; i < rope_dim; ++i) kr[i] = kr[i] / *kv_scales;
}

}  // namespace afd::ops
