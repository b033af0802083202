// SPDX-License-Identifier: Apache-2.0

#include <cstring>

#include "ops/attention/cache_quant.h"
#include "ops/attention/rms_norm.h"
#include "ops/attention/rope.h"
#include "ops/operators/mla_v3/mla_prolog_v3_call.h"

namespace afd::ops {
namespace {

void round_into(const float* v, size_t count, std::byte* row) {
    for (size_t i = 0; i < count; ++i) {
        const Bf16 rounded = from_float(v[i]);
        std::memcpy(row + i * sizeof(Bf16), &rounded, sizeof(Bf16));
    }
}

void encode_tile_row(
    const TileRow& tile_row, float alpha, const float* latent, const float* key, std::byte* row) {
    for (size_t tile = 0; tile < tile_row.num_tiles(); ++tile) {
        const size_t first = tile * tile_row.tile_size;
        const float scale = quantise_tile(
            latent + first, tile_row.tile_size, alpha, reinterpret_cast<int8_t*>(row) + first);
        std::memcpy(row + tile_row.scales_offset() + tile * sizeof scale, &scale, sizeof scale);
    }
    round_into(key, tile_row.rope, row + tile_row.rope_offset());
}

// The row of kv_cache, and unless per tile that of kr_cache, of one token.
void write_rows(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch, size_t row) {
    const MlaPrologV3Request& r = call.request;
    const MlaPrologV3Plan& plan = call.plan;
    const size_t latent = plan.shape.kv_lora_rank;
    const size_t rope_dim = plan.shape.qk_rope_head_dim;
    auto* int8_row = reinterpret_cast<int8_t*>(scratch.row);
    switch (plan.kv_quant) {
        case KvQuant::kNone:
            round_into(scratch.ckv, latent, scratch.row);
            break;
        case KvQuant::kPerTensor:
            quantise_with_scales(
                scratch.ckv, latent, data_of<float>(r.quant_scale_ckv), 0, int8_row);
            break;
        case KvQuant::kPerChannel:
            quantise_with_scales(
                scratch.ckv, latent, data_of<float>(r.quant_scale_ckv), 1, int8_row);
            break;
        case KvQuant::kPerTile:
            encode_tile_row(
                plan.tile_row, plan.k_nope_clip_alpha, scratch.ckv, scratch.kr, scratch.row);
            break;
    }
    plan.kv_rows.store(r.kv_cache.data, row, scratch.row);
    if (plan.kv_quant == KvQuant::kPerTile) return;
    if (plan.kv_quant == KvQuant::kPerChannel) {
        quantise_with_scales(scratch.kr, rope_dim, data_of<float>(r.quant_scale_ckr), 1, int8_row);
    } else {
        round_into(scratch.kr, rope_dim, scratch.row);
    }
    plan.kr_rows.store(r.kr_cache.data, row, scratch.row);
}

// In token order, so that of equal rows the last token wins.
template <typename T>
void write_cache(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch, Rows<T> kv) {
    const MlaPrologV3Request& r = call.request;
    const size_t latent = call.plan.shape.kv_lora_rank;
    const size_t rope_dim = call.plan.shape.qk_rope_head_dim;
    CacheRowOfToken rows(r, call.plan);
    for (size_t t = 0; t < kv.num_rows; ++t) {
        const int64_t row = rows.next();
        if (row < 0) continue;
        const Rows<const T> own = kv.slice(t, 1);
        rms_norm_scaled(own.columns(0, latent),
                        data_of<Bf16>(r.rmsnorm_gamma_ckv),
                        r.rmsnorm_epsilon_ckv,
                        r.kc_scale,
                        make_rows(scratch.ckv, 1, latent));
        rope(kv.row(t) + latent,
             data_of<Bf16>(r.rope_cos) + t * rope_dim,
             data_of<Bf16>(r.rope_sin) + t * rope_dim,
             rope_dim,
             scratch.kr);
        write_rows(call, scratch, static_cast<size_t>(row));
    }
}

}  // namespace

void mla_prolog_v3_kv(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    const MlaPrologV3Request& r = call.request;
    const size_t num_tokens = call.plan.num_tokens;
    const size_t hidden = call.plan.shape.hidden;
    if (call.plan.weight_quant == 2) {
        const Int8Rows x{make_rows(data_of<int8_t>(r.token_x), num_tokens, hidden),
                         data_of<float>(r.dequant_scale_x)};
        // Full quantisation rounds kv only where it is stored (the specification, section 11).
        linear_f32(x, call.weights.weight_dkv_kr, scratch.kv32, call.parallel);
        write_cache(call, scratch, scratch.kv32);
        return;
    }
    linear(make_rows(data_of<Bf16>(r.token_x), num_tokens, hidden),
           call.weights.weight_dkv_kr,
           scratch.kv,
           call.parallel);
    write_cache(call, scratch, scratch.kv);
}

}  // namespace afd::ops
