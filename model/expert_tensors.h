// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertTensors: the three matrices of one SwiGLU MLP as the checkpoint stores them, [out, in]
// row-major: a routed expert, the shared experts of a layer, or a dense layer.

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/tensor_store.h"
#include "ops/bf16.h"
#include "ops/tensor_view.h"
#include "proto/status.h"

namespace afd::model {

struct ExpertTensors {
    size_t hidden = 0;
    size_t intermediate = 0;
    std::vector<ops::Bf16> gate;  // [intermediate, hidden]
    std::vector<ops::Bf16> up;    // [intermediate, hidden]
    std::vector<ops::Bf16> down;  // [hidden, intermediate]

    ops::Rows<const ops::Bf16> gate_rows() const;
    ops::Rows<const ops::Bf16> up_rows() const;
    ops::Rows<const ops::Bf16> down_rows() const;
};

// Logical experts of an MoE layer: 0 ... num_experts-1 routed, num_experts the shared ones. Of a
// dense layer: 0. Reads one tensor set per expert (experts.<e>.gate_proj.weight ...), or the fused
// experts.gate_up_proj [E, 2 I, hidden] (gate rows first) and experts.down_proj [E, hidden, I].
// Errors: those of TensorStore; kInvalidArgument for an expert that the layer does not have.
Result<ExpertTensors> read_expert_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer,
                                          uint32_t expert);

}  // namespace afd::model
