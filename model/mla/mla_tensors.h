// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaTensors: the tensors of one layer's attention, with the norm before it, as the checkpoint
// stores them, [out, in] row-major. Packed for the kernels they become model/mla/mla_weights.h; the
// reference decoder uses them as they are.

#include <cstdint>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "ops/attention/mla_prolog.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// Shapes in the order of the fields' dims; an absent tensor is empty.
struct MlaTensors {
    std::vector<ops::Bf16> gamma_input;  // [hidden]
    StoredMatrix q_a_proj;               // [q_lora_rank, hidden]; only with a low rank.
    std::vector<ops::Bf16> gamma_q_a;    // [q_lora_rank]; only with a low rank.
    StoredMatrix q_proj;     // [heads * (nope + rope dim), q_lora_rank or hidden]: q_b or q.
    StoredMatrix kv_a_proj;  // [kv_lora_rank + rope dim, hidden]
    std::vector<ops::Bf16> gamma_kv_a;  // [kv_lora_rank]
    std::vector<ops::Bf16> kv_b_proj;   // [heads * (nope dim + v dim), kv_lora_rank]
    StoredMatrix o_proj;                // [hidden, heads * v_head_dim]
};

// A matrix in the format that the configuration states for attention. (kv_b_proj is bf16 in every
// checkpoint: absorbed into the query it is summed along its output channels, where a scale for
// each could not be taken out of the sum.)
struct MlaMatrix {
    AttentionMatrix stored;
    StoredMatrix MlaTensors::*field = nullptr;
};
std::vector<MlaMatrix> mla_matrices(const ops::MlaShape& shape, uint32_t layer);

// Errors: those of read_matrix(); each names the file, the tensor and both shapes.
Result<MlaTensors> read_mla_tensors(const TensorStore& tensors,
                                    const ops::MlaShape& shape,
                                    ops::WeightFormat format,
                                    uint32_t layer);

// What kv_dtype = int8_channel multiplies by: F32 [kv_lora_rank] and [qk_rope_head_dim].
std::string latent_scale_name(uint32_t layer);
std::string key_scale_name(uint32_t layer);

}  // namespace afd::model
