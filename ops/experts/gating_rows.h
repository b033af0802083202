// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gating of rows: fp32 router logits to topk_ids and topk_weights. This is the kernel that the
// daemon's router calls; ops/operators/moe_gating_top_k.h is the operator on tensors over it.
//
// scores = softmax, sigmoid or sqrt(log(1 + e^x)) of the logits, every step in fp32; choice =
// scores + bias (the bias only chooses). The n_group groups are ranked by their best choice (mode
// 0) or the sum of their two best (mode 1); topk_group groups stay, by (score descending, index
// ascending); of their experts the top_k by (choice descending, index ascending). weight = score at
// the pick, divided by (the sum in pick order + 1e-20) with norm_topk_prob, times
// routed_scaling_factor.
// Covers DeepSeek-V3 (noaux_tc: sigmoid, bias, groups by two best) and V2 (greedy,
// group_limited_greedy: softmax, groups by the best); the model layer maps a checkpoint's config.
//
// Sparsemixer (Phi-3.5-MoE), instead of all of it: two picks, each the best logit of those that are
// left, of equal ones the lowest index. Of the logits s that are left those with
// (top − s) / max(|s|, top) > 2 · jitter drop out, where top is the pick's; its weight is the
// softmax of the rest at it. So an expert without a near rival weighs 1, and weights do not add up
// to 1. Every step in fp32, the sum in 16 partial sums.
//
// A row with a NaN score or choice, or where groups leave with a NaN among their scores (infinities
// of both signs have no sum), gives ids 0 ... top_k-1 with NaN weights: visible, not silent.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

enum class GatingNorm : uint8_t { kSoftmax = 0, kSigmoid = 1, kSqrtSoftplus = 2 };
enum class GroupSelectMode : uint8_t { kMax = 0, kSumOfTwoBest = 1 };

struct GatingAttributes {
    size_t num_experts = 0;
    size_t top_k = 0;
    GatingNorm norm = GatingNorm::kSoftmax;
    size_t n_group = 1;
    size_t topk_group = 1;
    GroupSelectMode group_select_mode = GroupSelectMode::kMax;
    bool norm_topk_prob = false;
    float routed_scaling_factor = 1.0f;
    std::optional<float> mixer_jitter = {};  // Of a sparsemixer.
};

// Errors: kInvalidArgument names the attribute, its value and what is allowed: num_experts a
// positive multiple of n_group, 1 <= topk_group <= n_group, 1 <= top_k <= topk_group · num_experts
// / n_group; with mixer_jitter, which is finite and not negative, top_k 2, n_group 1 and no
// norm_topk_prob.
Result<> validate(const GatingAttributes& attributes);

size_t gating_rows_workspace_bytes(const GatingAttributes& attributes);

// Shapes: logits [num_tokens, num_experts]; bias [num_experts] or empty (with mixer_jitter: empty);
// topk_weights, topk_ids [num_tokens, top_k] (columns beyond top_k are left alone).
// REQUIRES: validate(attributes).ok().
void gating_rows(const GatingAttributes& attributes,
                 Rows<const float> logits,
                 std::span<const float> bias,
                 Rows<float> topk_weights,
                 Rows<int32_t> topk_ids,
                 std::span<std::byte> workspace);

// Hash routing: the experts are given, by token ids say; their weights are those of the rule above.
// Shapes: logits [num_tokens, num_experts]; topk_ids, topk_weights [num_tokens, top_k]. A row with
// a NaN score gets NaN weights. An id may repeat; each slot has its weight. REQUIRES:
// validate(attributes).ok(), without mixer_jitter; every id is in [0, num_experts).
void gating_weights(const GatingAttributes& attributes,
                    Rows<const float> logits,
                    Rows<const int32_t> topk_ids,
                    Rows<float> topk_weights,
                    std::span<std::byte> workspace);

}  // namespace afd::ops
