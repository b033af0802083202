// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertTensors: the three matrices of one SwiGLU MLP as the checkpoint stores them, [out, in]
// row-major: a routed expert, the shared experts of a layer, or a dense layer.

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "proto/status.h"

namespace afd::model {

// What of an expert is read; the matrices of the other part stay empty.
enum class ExpertPart { kAll, kGateUp, kDown };

// Of an expert of gpt-oss (fused_experts.h).
struct ExpertBiases {
    std::vector<ops::Bf16> gate;  // [I]
    std::vector<ops::Bf16> up;    // [I]
    std::vector<ops::Bf16> down;  // [H]
};

// All three in expert_format().
struct ExpertTensors {
    StoredMatrix gate;  // [intermediate, hidden]
    StoredMatrix up;    // [intermediate, hidden]
    StoredMatrix down;  // [hidden, intermediate]
    // [hidden]; empty: none. Before a row of the input is quantised to int8 it is multiplied by
    // them; gate and up are stored with their columns divided by them.
    std::vector<float> smooth = {};
    // [hidden]; empty: none. The result is multiplied by sigmoid(x · output_gate).
    std::vector<float> output_gate = {};
    // Added to the sums of each product; all three empty: none.
    ExpertBiases bias = {};
};

// Logical experts of a layer: num_experts and the shared slot, or 1 in a dense layer.
uint32_t num_layer_experts(const ModelConfig& config, uint32_t layer);

// Width of an expert of the layer. REQUIRES: expert < num_layer_experts(config, layer).
uint32_t expert_intermediate(const ModelConfig& config, uint32_t layer, uint32_t expert);

// Whether the router chooses it: it is neither the shared experts nor a dense layer's MLP.
bool is_routed_expert(const ModelConfig& config, uint32_t layer, uint32_t expert);

// Of the expert's matrices. REQUIRES: as expert_intermediate().
ops::WeightFormat expert_format(const ModelConfig& config, uint32_t layer, uint32_t expert);

// What stands before "gate_proj.weight" and its companions (TensorNames) where they are tensors of
// their own.
std::string expert_prefix(const ModelConfig& config, uint32_t layer, uint32_t expert);

// The error that says which experts there are instead.
Error no_such_expert(const ModelConfig& config, uint32_t layer, uint32_t expert);

// Reads tensor `prefix`smooth_scale, F32 [hidden]; empty if the configuration states none.
// Errors: those of TensorStore; kDataLoss for a scale that is not finite or not positive.
Result<std::vector<float>> read_smooth_scale(const TensorStore& tensors,
                                             const ModelConfig& config,
                                             uint32_t layer,
                                             uint32_t expert);

// Reads TensorNames::shared_gate, [1, hidden], for the shared experts of a model that has it; empty
// for every other expert. Errors: those of TensorStore.
Result<std::vector<float>> read_output_gate(const TensorStore& tensors,
                                            const ModelConfig& config,
                                            uint32_t layer,
                                            uint32_t expert);

// Of a routed expert. REQUIRES: config.has_expert_bias. Errors: those of TensorStore.
Result<ExpertBiases> read_expert_biases(const TensorStore& tensors,
                                        const ModelConfig& config,
                                        uint32_t layer,
                                        uint32_t expert);

// Logical experts of an MoE layer: 0 ... num_experts-1 routed, num_experts the shared ones. Of a
// dense layer: 0. Reads one tensor set per expert (experts.<e>.gate_proj.weight ...), or the fused
// experts.gate_up_proj [E, 2 I, hidden] (gate rows first) and experts.down_proj [E, hidden, I], in
// bf16, fp16 or fp32 only.
// Errors: those of read_matrix(); kInvalidArgument for an expert that the layer does not have,
// kUnimplemented for fused experts of a quantised model.
Result<ExpertTensors> read_expert_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer,
                                          uint32_t expert,
                                          ExpertPart part = ExpertPart::kAll);

}  // namespace afd::model
