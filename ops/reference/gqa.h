// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference attention with grouped heads, for one sequence; see ops/attention/gqa_prolog.h and
// gqa_attention.h. Weights are the checkpoint's own matrices, [out, in] row-major; the cache is one
// Matrix row per position, heads side by side.

#include <cstdint>
#include <optional>
#include <span>

#include "ops/attention/rope.h"
#include "ops/format/gqa_cache.h"
#include "ops/reference/linear.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

struct GqaMatrices {
    GqaShape shape;
    LinearWeight q_proj;
    LinearWeight k_proj;
    LinearWeight v_proj;
    std::span<const Bf16> q_bias;  // Or empty, as the next four.
    std::span<const Bf16> k_bias;
    std::span<const Bf16> v_bias;
    std::span<const Bf16> q_gamma;  // [head_dim] or [query_columns]
    std::span<const Bf16> k_gamma;  // [head_dim] or [kv_columns]
    double norm_epsilon = 1e-6;
    std::optional<double> clip;
    double softmax_scale = 1;
    size_t window = 0;                  // Positions that a token sees, its own included; 0: all.
    std::span<const float> sinks = {};  // [num_heads], or none.
};

struct GqaPrologOutput {
    Matrix query;  // [T, query_columns]
    Matrix key;    // [T, kv_columns]
    Matrix value;  // [T, kv_columns]
};

// Shapes: x [T, hidden], positions [T].
GqaPrologOutput gqa_prolog(const GqaMatrices& weights,
                           const Matrix& x,
                           std::span<const int32_t> positions,
                           const RopeTable& rope,
                           Rounding rounding);

// Attends token t to rows 0 ... positions[t] of key and value [S, kv_columns], S > max position.
// Returns [T, query_columns], before the output projection.
Matrix gqa_attention(const GqaMatrices& weights,
                     const Matrix& query,
                     const Matrix& key,
                     const Matrix& value,
                     std::span<const int32_t> positions,
                     Rounding rounding);

}  // namespace afd::ops::reference
