// SPDX-License-Identifier: Apache-2.0
#pragma once

// RouterTensors: the gate of one MoE layer as the checkpoint stores it: its weight, and
// e_score_correction_bias, or in a hash layer tid2eid (the experts of each token id; I32 or I64).
// Packed for the kernels it becomes part of a model/decoder/router.h; the reference decoder uses it
// as it is.
//
// Unlike other weights the gate is not rounded to bf16: experts that score nearly alike would
// change places. What bf16 does not hold is in further parts, as many as the values need: W = W0 +
// W1 + W2 with W0 = W →bf16, W1 = (W - W0) →bf16, W2 = (W - W0 - W1) →bf16. One holds BF16 and what
// was rounded to it before, two hold F16, three F32 (but for bits of less than 2^-133).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "model/safetensors/storage_type.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

struct RouterTensors {
    std::vector<ops::Bf16> gate;  // [num_parts · num_experts, hidden]: W0, then W1, then W2.
    // [num_experts]; only with TopkMethod::kNoauxTc and not in a hash layer, else empty.
    std::vector<float> bias;
    // [num_experts], added to the logits; only with TensorNames::router_logit_bias, else empty.
    std::vector<float> logit_bias;
    std::vector<int32_t> token_experts;  // [vocab_size, top_k]: in a hash layer, else empty.
};

// Parts of a gate that is stored in this type, at most.
size_t gate_parts_max(StorageType dtype);

// REQUIRES: config.is_moe_layer(layer).
// Errors: those of TensorStore; each names the file, the tensor and both shapes. kDataLoss: an
// entry of token_experts that is no routed expert.
Result<RouterTensors> read_router_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer);

}  // namespace afd::model
