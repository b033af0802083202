// SPDX-License-Identifier: Apache-2.0
#pragma once

// A random MLA layer and a cache for it, for the tests of the serving path's attention.

#include <gtest/gtest.h>

#include <vector>

#include "ops/attention/mla_attention.h"
#include "ops/attention/mla_prolog.h"
#include "ops/reference/mla.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

inline constexpr size_t kMlaBlocks = 8;

// One layer with uneven sizes; 9 heads make two head groups of a token.
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

    MlaLayer(NumericClass numeric_class, size_t q_lora_rank)
        : shape{.hidden = 70,
                .q_lora_rank = q_lora_rank,
                .kv_lora_rank = 45,
                .num_heads = 9,
                .qk_nope_head_dim = 20,
                .qk_rope_head_dim = 12,
                .v_head_dim = 18},
          uq_qr(9 * 32, q_lora_rank == 0 ? 70 : q_lora_rank, 2, 0.15f),
          dkv_kr(45 + 12, 70, 3, 0.15f),
          kv_b(9 * 38, 45, 4, 0.15f),
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
    std::vector<Bf16> ckv;
    std::vector<Bf16> kr;

    explicit MlaCache(const MlaShape& s)
        : ckv(kMlaBlocks * kAttentionBlock * s.kv_lora_rank, Bf16{0x7fc0}),
          kr(kMlaBlocks * kAttentionBlock * s.qk_rope_head_dim, Bf16{0x7fc0}) {}
    LatentCache view() { return {ckv.data(), kr.data(), kMlaBlocks * kAttentionBlock}; }
};

}  // namespace afd::ops::test
