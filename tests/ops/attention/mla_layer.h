// SPDX-License-Identifier: Apache-2.0
#pragma once

// A random MLA layer and a cache for it, for the tests of the serving path's attention.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/attention/mla_attention.h"
#include "ops/attention/mla_prolog.h"
#include "ops/reference/mla.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

inline constexpr size_t kMlaBlocks = 8;

// One layer with uneven sizes; 9 heads make two head groups of a token where threads share it.
struct MlaLayer {
    MlaShape shape;
    RandomMatrix dq;
    RandomMatrix uq_qr;
    RandomMatrix dkv_kr;
    RandomMatrix kv_b;
    RandomMatrix gamma_cq;
    RandomMatrix gamma_ckv;
    MlaWeights weights;
    RopeTable rope;

    MlaLayer(NumericClass numeric_class, size_t q_lora_rank, size_t num_heads = 9)
        : shape{.hidden = 70,
                .q_lora_rank = q_lora_rank,
                .kv_lora_rank = 45,
                .num_heads = num_heads,
                .qk_nope_head_dim = 20,
                .qk_rope_head_dim = 12,
                .v_head_dim = 18},
          uq_qr(num_heads * 32, q_lora_rank == 0 ? 70 : q_lora_rank, 2, 0.15f),
          dkv_kr(45 + 12, 70, 3, 0.15f),
          kv_b(num_heads * 38, 45, 4, 0.15f),
          gamma_ckv(1, 45, 6) {
        if (q_lora_rank != 0) {
            dq = RandomMatrix(q_lora_rank, 70, 1, 0.15f);
            gamma_cq = RandomMatrix(1, q_lora_rank, 5);
            weights.weight_dq = PackedLinear::pack(dq.rows(), numeric_class);
        }
        weights.shape = shape;
        weights.weight_uq_qr = PackedLinear::pack(uq_qr.rows(), numeric_class);
        weights.weight_dkv_kr = PackedLinear::pack(dkv_kr.rows(), numeric_class);
        weights.rmsnorm_gamma_cq = gamma_cq.values;
        weights.rmsnorm_gamma_ckv = gamma_ckv.values;
        weights.softmax_scale = 0.2f;
        pack_kv_b_proj(kv_b.rows(), numeric_class, weights);
        rope =
            RopeTable::make({.dim = 12, .theta = 10000, .num_positions = 256, .yarn = {}}).value();
        EXPECT_TRUE(validate(weights).ok());
    }

    reference::MlaMatrices reference_weights() const {
        return {.shape = shape,
                .weight_dq = dq.rows(),
                .weight_uq_qr = uq_qr.rows(),
                .weight_dkv_kr = dkv_kr.rows(),
                .weight_uk_uv = kv_b.rows(),
                .rmsnorm_gamma_cq = gamma_cq.values,
                .rmsnorm_gamma_ckv = gamma_ckv.values,
                .softmax_scale = static_cast<double>(weights.softmax_scale)};
    }
};

// A cache full of NaN, so that reading a slot nobody wrote shows.
struct MlaCache {
    KvDtype dtype;
    std::vector<Bf16> ckv;
    std::vector<Bf16> kr;
    std::vector<std::byte> rows;    // Not bf16: with scales that are NaN.
    std::vector<float> ckv_factor;  // int8_channel: another one for each channel.
    std::vector<float> kr_factor;

    explicit MlaCache(const MlaShape& s, KvDtype kv_dtype = KvDtype::kBf16)
        : dtype(kv_dtype),
          ckv(kMlaBlocks * kAttentionBlock * s.kv_lora_rank, Bf16{0x7fc0}),
          kr(kMlaBlocks * kAttentionBlock * s.qk_rope_head_dim, Bf16{0x7fc0}),
          rows(kMlaBlocks * kAttentionBlock *
                   latent_row_bytes(kv_dtype, s.kv_lora_rank, s.qk_rope_head_dim),
               std::byte{0xff}),
          ckv_factor(s.kv_lora_rank),
          kr_factor(s.qk_rope_head_dim) {
        std::iota(ckv_factor.begin(), ckv_factor.end(), 20.5f);
        std::iota(kr_factor.begin(), kr_factor.end(), 30.25f);
    }
    LatentCache view() {
        return {.ckv = ckv.data(),
                .kr = kr.data(),
                .num_slots = kMlaBlocks * kAttentionBlock,
                .dtype = dtype,
                .rows = rows.data(),
                .quant_scale_ckv = ckv_factor.data(),
                .quant_scale_ckr = kr_factor.data()};
    }
};

struct MlaResults {
    RandomMatrix query;
    RandomMatrix query_rope;
    RandomMatrix out;
};

// Prolog and attention of tokens of one sequence whose blocks are `table`.
inline MlaResults mla_forward(const MlaLayer& layer,
                              const RandomMatrix& x,
                              const std::vector<int32_t>& positions,
                              const std::vector<int32_t>& table,
                              LatentCache cache,
                              Parallel& parallel) {
    const MlaShape& s = layer.shape;
    const size_t num_tokens = positions.size();
    std::vector<int64_t> cache_index;
    for (const int32_t position : positions) {
        const auto p = static_cast<size_t>(position);
        cache_index.push_back(static_cast<int64_t>(table[p / kAttentionBlock]) *
                                  static_cast<int64_t>(kAttentionBlock) +
                              position % static_cast<int32_t>(kAttentionBlock));
    }
    const std::vector<const int32_t*> tables(num_tokens, table.data());
    const AttentionBatch batch{num_tokens, positions.data(), cache_index.data(), tables.data()};
    MlaResults r{RandomMatrix(num_tokens, s.num_heads * s.kv_lora_rank, 1),
                 RandomMatrix(num_tokens, s.num_heads * s.qk_rope_head_dim, 1),
                 RandomMatrix(num_tokens, s.num_heads * s.v_head_dim, 1)};
    const Workspace workspace(
        std::max(mla_prolog_workspace_bytes(s, num_tokens),
                 mla_attention_workspace_bytes(s, num_tokens, parallel.num_threads())));
    EXPECT_TRUE(mla_prolog({.weights = &layer.weights,
                            .rope = &layer.rope,
                            .token_x = x.rows(),
                            .batch = batch,
                            .cache = cache,
                            .query = r.query.mutable_rows(),
                            .query_rope = r.query_rope.mutable_rows(),
                            .query_norm = {}},
                           workspace.bytes(),
                           parallel)
                    .ok());
    EXPECT_TRUE(mla_attention({.weights = &layer.weights,
                               .query = r.query.rows(),
                               .query_rope = r.query_rope.rows(),
                               .batch = batch,
                               .cache = cache,
                               .out = r.out.mutable_rows()},
                              workspace.bytes(),
                              parallel)
                    .ok());
    return r;
}

}  // namespace afd::ops::test
