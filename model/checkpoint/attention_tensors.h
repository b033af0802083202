// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionTensors: the tensors of one layer's norms and attention as the checkpoint stores them,
// [out, in] row-major. Packed for the kernels they become model/decoder/attention_weights.h; the
// reference decoder uses them as they are.

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// Shapes in the order of the fields' dims; an absent tensor is empty.
struct AttentionTensors {
    std::vector<ops::Bf16> gamma_input;           // [hidden]
    std::vector<ops::Bf16> gamma_post_attention;  // [hidden]
    StoredMatrix q_a_proj;                        // [q_lora_rank, hidden]; only with a low rank.
    std::vector<ops::Bf16> gamma_q_a;             // [q_lora_rank]; only with a low rank.
    StoredMatrix q_proj;                // [heads * qk_head_dim, q_lora_rank or hidden]: q_b or q.
    StoredMatrix kv_a_proj;             // [kv_lora_rank + rope dim, hidden]
    std::vector<ops::Bf16> gamma_kv_a;  // [kv_lora_rank]
    std::vector<ops::Bf16> kv_b_proj;   // [heads * (nope dim + v dim), kv_lora_rank]
    StoredMatrix o_proj;                // [hidden, heads * v_head_dim]
};

// A matrix in the format that the configuration states for attention. (kv_b_proj is bf16 in every
// checkpoint: absorbed into the query it is summed along its output channels, where a scale for
// each could not be taken out of the sum.)
struct AttentionMatrix {
    std::string prefix;  // "model.layers.3.self_attn.o_proj": what stands before ".weight".
    uint64_t num_outputs = 0;
    uint64_t depth = 0;
    StoredMatrix AttentionTensors::*field = nullptr;
};
std::vector<AttentionMatrix> attention_matrices(const ModelConfig& config, uint32_t layer);

// Errors: those of read_matrix(); each names the file, the tensor and both shapes.
Result<AttentionTensors> read_attention_tensors(const TensorStore& tensors,
                                                const ModelConfig& config,
                                                uint32_t layer);

}  // namespace afd::model
