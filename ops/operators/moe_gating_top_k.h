// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeGatingTopK on tensors: router logits of any floating type to the chosen experts.
//
//   scores = softmax, sigmoid or sqrt(softplus) of x in fp32
//   choice = scores + bias
//   expert_idx = the k best choices inside the topk_group best groups
//   y = scores at the picks, normalised, times the factor
//
// This is the operator that stands alone; the arithmetic and every tie are those of
// ops/experts/gating_rows.h, which the daemon's router calls.
// Source: docs/specification.md, section 6.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/experts/gating_rows.h"
#include "ops/record/operator_spec.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct MoeGatingTopKRequest;
extern const RecordOf<MoeGatingTopKRequest> kMoeGatingTopKSpec;

struct MoeGatingTopKRequest {
    int64_t k = 0;
    int64_t topk_group = 1;
    int64_t n_group = 1;
    int64_t group_select_mode = -1;  // 0 best, 1 sum of two best, -1: 1 with a bias, else 0
    bool norm_topk_prob = false;
    int64_t norm_type = 0;  // A GatingNorm: 0 softmax, 1 sigmoid, 2 sqrt(softplus).
    float routed_scaling_factor = 1.0f;

    ConstTensorView x = {};     // [N, E] fp32, bf16 or fp16
    ConstTensorView bias = {};  // [E] fp32, optional

    TensorView y = {};           // [N, k] fp32
    TensorView expert_idx = {};  // [N, k] int32
};

// The attributes of the kernel. Errors: kInvalidArgument, everything a request can be refused for.
Result<GatingAttributes> check_moe_gating_top_k(const MoeGatingTopKRequest& request);

// Of a request that was checked.
size_t moe_gating_top_k_workspace_bytes(const MoeGatingTopKRequest& request);

// Errors: kInvalidArgument; then nothing was written.
Result<> moe_gating_top_k(const MoeGatingTopKRequest& request, std::span<std::byte> workspace);

}  // namespace afd::ops
