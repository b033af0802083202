// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaProlog: the three projections of attention with grouped heads, and what happens to their rows
// before the softmax.
//
//   q = (x·Wqᵀ + bias) →bf16, k and v likewise; the bias is added before the rounding.
//   q, k = rms_norm(q), rms_norm(k), where they have a gamma: of each head, or of the whole row
//          (ops/attention/rms_norm.h)
//   q, k, v = clamped to [-clip, clip] →bf16, where there is a clip
//   q, k = each head rotated (rope_half); k and v enter the cache.
// A row's bits depend on the row alone. The softmax over the cache is
// ops/attention/gqa_attention.h.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ops/attention/rope.h"
#include "ops/format/attention_batch.h"
#include "ops/format/gqa_cache.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

// One layer's weights, packed once at load. What is empty the model does not have.
struct GqaWeights {
    GqaShape shape;
    PackedLinear q_proj;         // [query_columns, hidden]
    PackedLinear k_proj;         // [kv_columns, hidden]
    PackedLinear v_proj;         // [kv_columns, hidden]
    std::vector<Bf16> q_bias;    // [query_columns]
    std::vector<Bf16> k_bias;    // [kv_columns]
    std::vector<Bf16> v_bias;    // [kv_columns]
    std::vector<Bf16> q_gamma;   // [head_dim] for each head alone, or [query_columns] for the row.
    std::vector<Bf16> k_gamma;   // [head_dim] or [kv_columns]
    float norm_epsilon = 1e-6f;  // Of both norms.
    std::optional<float> clip;   // Positive.
};

// Checks that every part has the size that `shape` asks for.
// Errors: kInvalidArgument names the part, its size and the size wanted.
Result<> validate(const GqaWeights& weights);

struct GqaPrologRequest {
    const GqaWeights* weights = nullptr;
    const RopeTable* rope = nullptr;  // dim: head_dim, or less where a part of a head is rotated.
    Rows<const Bf16> x;               // [T, hidden]
    AttentionBatch batch;             // T tokens; block_tables are not used here.
    GqaCache cache;    // Updated in place at batch.cache_index; the last of equal ones wins.
    Rows<Bf16> query;  // out [T, query_columns]
};

size_t gqa_prolog_workspace_bytes(const GqaShape& shape, size_t num_tokens_max);

// Errors: kInvalidArgument, before anything is written: a cache_index outside [-1, num_slots), a
// position outside the rope table.
Result<> gqa_prolog(const GqaPrologRequest& request,
                    std::span<std::byte> workspace,
                    Parallel& parallel);

}  // namespace afd::ops
