// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3, the scenario of bf16 weights and queries (weight and query mode 0): from normalised
// hidden rows to absorbed queries, and the latent and rotated key into the paged cache.
//
//   cq = x·Wdq →bf16;  n = rms(cq)·γ·qc_qr_scale →bf16;  qq = n·Wuq_qr →bf16 as [N, D + Dr]
//   query = qq_D·Wuk per head →bf16;  query_rope = rope(qq_R) →bf16
//   kv = x·Wdkv_kr →bf16 as [Hckv | Dr];  ckv = rms(kv)·γ·kc_scale →bf16;  kr = rope(kv_R) →bf16
// Into a cache that is not bf16 the latent goes as ops/format/latent_cache.h says: int8 from
// rms(kv)·γ·kc_scale in fp32, the operator's kv mode 3; fp8 from the bf16 ckv; int8_channel from
// both parts in fp32, its kv mode 2. Without a query low-rank (q_lora_rank 0) qq = x·Wuq_qr
// directly. Wdq, Wuq_qr and Wdkv_kr may have int8 weights: x and n are then quantised per row for
// these products (ops/linear/linear.h); every rounding point stays. The decoder calls this; the
// operator on tensors is ops/operators/mla_v3/mla_prolog_v3.h.

#include <cstddef>
#include <span>
#include <vector>

#include "ops/attention/rope.h"
#include "ops/format/attention_batch.h"
#include "ops/format/latent_cache.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct MlaShape {
    size_t hidden = 0;            // He
    size_t q_lora_rank = 0;       // Hcq; 0: no low-rank query.
    size_t kv_lora_rank = 0;      // Hckv
    size_t num_heads = 0;         // N
    size_t qk_nope_head_dim = 0;  // D
    size_t qk_rope_head_dim = 0;  // Dr, even.
    size_t v_head_dim = 0;        // V

    // Of all heads, a row of: what W_uq_qr gives, of the absorbed query, of its rotated part, of
    // the result.
    size_t query_columns() const { return num_heads * (qk_nope_head_dim + qk_rope_head_dim); }
    size_t latent_columns() const { return num_heads * kv_lora_rank; }
    size_t rope_columns() const { return num_heads * qk_rope_head_dim; }
    size_t value_columns() const { return num_heads * v_head_dim; }
    // What W_dkv_kr gives, for all heads together.
    size_t kv_columns() const { return kv_lora_rank + qk_rope_head_dim; }
};

// One layer's MLA weights (seed names), packed once at load.
struct MlaWeights {
    MlaShape shape;
    PackedLinear weight_dq;               // [Hcq, He]; empty if q_lora_rank is 0.
    PackedLinear weight_uq_qr;            // [N·(D + Dr), Hcq or He]
    std::vector<PackedLinear> weight_uk;  // N matrices [Hckv, D]
    PackedLinear weight_dkv_kr;           // [Hckv + Dr, He]
    std::vector<PackedLinear> weight_uv;  // N matrices [V, Hckv]; used by MlaAttention.
    std::vector<Bf16> rmsnorm_gamma_cq;   // [Hcq]
    std::vector<Bf16> rmsnorm_gamma_ckv;  // [Hckv]
    float rmsnorm_epsilon_cq = 1e-5f;
    float rmsnorm_epsilon_ckv = 1e-5f;
    float qc_qr_scale = 1.0f;
    float kc_scale = 1.0f;
    float softmax_scale = 1.0f;  // Used by MlaAttention.
    // The factors of a cache with one for each channel (LatentCache), or empty.
    std::vector<float> quant_scale_ckv;  // [Hckv]
    std::vector<float> quant_scale_ckr;  // [Dr]
};

// Splits a checkpoint's kv_b_proj [N·(D + V), Hckv] into weight_uk and weight_uv.
// REQUIRES: weights.shape is set and kv_b_proj has its size.
void pack_kv_b_proj(Rows<const Bf16> kv_b_proj, NumericClass numeric_class, MlaWeights& weights);

// Checks that every part has the size that `shape` asks for.
// Errors: kInvalidArgument names the part, its size and the size wanted.
Result<> validate(const MlaWeights& weights);

struct MlaPrologRequest {
    const MlaWeights* weights = nullptr;
    const RopeTable* rope = nullptr;
    Rows<const Bf16> token_x;  // [T, He]
    AttentionBatch batch;      // T tokens; block_tables are not used here.
    LatentCache cache;      // Updated in place at batch.cache_index; the last of equal ones wins.
    Rows<Bf16> query;       // out [T, N·Hckv]
    Rows<Bf16> query_rope;  // out [T, N·Dr]
    Rows<Bf16> query_norm;  // out [T, Hcq], or empty: n itself is not wanted.
};

size_t mla_prolog_workspace_bytes(const MlaShape& shape, size_t num_tokens_max);

// Errors: kInvalidArgument, before anything is written: a cache_index outside [-1, num_slots), a
// position outside the rope table, query_norm asked for without a low-rank query.
Result<> mla_prolog(const MlaPrologRequest& request,
                    std::span<std::byte> workspace,
                    Parallel& parallel);

}  // namespace afd::ops
