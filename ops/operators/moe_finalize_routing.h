// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeFinalizeRouting: the weighted sum of each token's expert rows, the way back of
// MoeInitRoutingV3.
//
//   out[n] = x1[n] + x2[n] + Σ_k scales[n, k]·(row + bias[expert_idx[n, k]])
//   with row = expanded_x[expanded_row_idx[n·K + k]]
//
// In fp32, one operation after the other in this order (k ascending, product rounded, then sum),
// →dtype of the rows once. What is not given is left out: x1, x2 as 0, scales as 1. An index -1
// adds nothing: neither row nor bias, and its expert is not read.
// This is the operator that stands alone; the daemon and the fused-MoE framework sum their rows
// with ops/experts/combine.h. Source: docs/specification.md, section 6.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct MoeFinalizeRoutingRequest;
extern const RecordOf<MoeFinalizeRoutingRequest> kMoeFinalizeRoutingSpec;

struct MoeFinalizeRoutingRequest {
    int64_t drop_pad_mode = 2;  // 2 dropless, 3 drop/pad; indices are row-major in both.

    ConstTensorView expanded_x = {};  // [P, H], or [E, C, H] with drop/pad: bf16, fp16 or fp32
    ConstTensorView expanded_row_idx = {};  // [N·K] int32 gather indices: a row, or -1
    ConstTensorView x1 = {};                // [N, H], optional
    ConstTensorView x2 = {};                // [N, H], optional
    ConstTensorView bias = {};              // [E, H], optional
    ConstTensorView scales = {};            // [N, K] fp32, bf16 or fp16, optional
    ConstTensorView expert_idx = {};        // [N, K] int32, needed with bias

    TensorView out = {};  // [N, H]; must not overlap the inputs.
};

// Everything that a request can be refused for. Cost: reads the indices once.
Result<> check_moe_finalize_routing(const MoeFinalizeRoutingRequest& request);

// Needs no scratch.
constexpr size_t moe_finalize_routing_workspace_bytes() {
    return 0;
}

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads.
Result<> moe_finalize_routing(const MoeFinalizeRoutingRequest& request,
                              std::span<std::byte> workspace,
                              Parallel& parallel);

}  // namespace afd::ops
