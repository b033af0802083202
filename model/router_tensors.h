// SPDX-License-Identifier: Apache-2.0
#pragma once

// RouterTensors: the gate of one MoE layer as the checkpoint stores it. Packed for the kernels it
// becomes part of a model/router.h; the reference decoder uses it as it is.

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/tensor_store.h"
#include "ops/bf16.h"
#include "proto/status.h"

namespace afd::model {

struct RouterTensors {
    std::vector<ops::Bf16> gate;  // [num_experts, hidden]
    std::vector<float> bias;      // [num_experts]; only with TopkMethod::kNoauxTc, else empty.
};

// REQUIRES: config.is_moe_layer(layer).
// Errors: those of TensorStore; each names the file, the tensor and both shapes.
Result<RouterTensors> read_router_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer);

}  // namespace afd::model
