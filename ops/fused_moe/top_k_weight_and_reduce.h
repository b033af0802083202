// SPDX-License-Identifier: Apache-2.0
#pragma once

// TopKWeightAndReduce: the routing-weighted sum over a token's slots, as an object that the Experts
// name and the PrepareFinalize executes, exactly once.
//
// The arithmetic is ops/experts/combine.h in every kind: fp32, k ascending, shared rows last with
// weight 1, →bf16 once.

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

class TopKWeightAndReduce {
  public:
    virtual ~TopKWeightAndReduce() = default;

    virtual WeightAndReduceKind kind() const = 0;

    // Reduces `experts_output` to out [num_tokens, hidden]. `batched_rows` [num_tokens, num_slots]
    // says for NaiveBatched which row of the output is whose, so any placement, order and repeated
    // expert works; a negative index masks; the other kinds do not look at it.
    // REQUIRES: kind() is not kDelegate (composition resolves it).
    virtual void apply(const ExpertsOutput& experts_output,
                       const MoeInput& input,
                       size_t num_experts,
                       const int32_t* batched_rows,
                       Rows<Bf16> out,
                       Parallel& parallel) const = 0;
};

// The one object of each kind.
const TopKWeightAndReduce& top_k_weight_and_reduce(WeightAndReduceKind kind);

}  // namespace afd::ops
