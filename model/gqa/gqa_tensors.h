// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaTensors: the tensors of one layer's attention with grouped heads, with the norm before it, as
// the checkpoint stores them. Packed for the kernels they become part of a GqaBlock; the reference
// decoder uses them as they are.

#include <cstdint>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "model/gqa/gqa_traits.h"
#include "ops/attention/rope.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// Matrices [out, in] row-major; what the model does not have is empty.
struct GqaTensors {
    NormTensors input_norm;
    StoredMatrix q_proj;             // [query_columns, hidden]
    StoredMatrix k_proj;             // [kv_columns, hidden]
    StoredMatrix v_proj;             // [kv_columns, hidden]
    StoredMatrix o_proj;             // [hidden, query_columns]
    std::vector<ops::Bf16> q_bias;   // [query_columns]
    std::vector<ops::Bf16> k_bias;   // [kv_columns]
    std::vector<ops::Bf16> v_bias;   // [kv_columns]
    std::vector<ops::Bf16> o_bias;   // [hidden]
    std::vector<float> sinks;        // [num_heads]
    std::vector<ops::Bf16> q_gamma;  // [head_dim] or [query_columns]
    std::vector<ops::Bf16> k_gamma;  // [head_dim] or [kv_columns]
};

// A matrix in the format that the configuration states for attention.
struct GqaMatrix {
    AttentionMatrix stored;
    StoredMatrix GqaTensors::*field = nullptr;
};
std::vector<GqaMatrix> gqa_matrices(const ops::GqaShape& shape, uint32_t layer);

// Errors: those of read_matrix(); each names the file, the tensor and both shapes.
Result<GqaTensors> read_gqa_tensors(const TensorStore& tensors,
                                    const ModelConfig& config,
                                    const GqaTraits& traits,
                                    uint32_t layer);

// head_dim^-1/2.
double gqa_softmax_scale(const ops::GqaShape& shape);

// The rotary table over the whole context. Errors: kInvalidArgument.
Result<ops::RopeTable> make_gqa_rope(const ModelConfig& config, const GqaTraits& traits);

}  // namespace afd::model
