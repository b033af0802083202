// SPDX-License-Identifier: Apache-2.0
#pragma once

// MoeInitRoutingV3: every token's row once per chosen expert, sorted by expert.
//
//   order = stable ascending sort of f = n·K + k by expert_idx[f], experts outside the active
//   range last; expanded_x[p] = op(x[order[p] div K]) for p < min(avail, active_num)
//
// op copies, or quantises to int8 (ops/linear/quantise.h). With drop_pad_mode 1 each expert gets
// exactly expert_capacity rows: the first of its slots in that order, then zeros.
// MoeFinalizeRouting is the way back. It has no second form: the live paths call it too, through
// moe_init_routing_v3_checked(). Source: the operator's seed document and docs/specification.md,
// section 6.
//
// Outputs (N tokens, K picks, H hidden, R experts in the active range, P rows):
//   expanded_x [P, H], P = N·K or min(active_num, N·K); drop/pad [expert_num, expert_capacity, H].
//     Dropless rows from min(avail, P) on are untouched.
//   expanded_row_idx [N·K]: gather (0): of slot f its row, or -1; scatter (1): of row p its slot
//     for p < avail, later elements untouched. Not limited by active_num. Drop/pad: e·C + i or -1.
//   expert_tokens_count_or_cumsum: type 0 inclusive prefix sums [R], 1 counts [R],
//     2 [expert_num, 2] pairs (global id, count) of experts with rows, ascending, then zeros. All
//     count what was asked for, before anything is dropped.
//   expanded_scale [P]: quant_mode 1 the row's scale; -1 with scale [N] the source row's.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct MoeInitRoutingV3Request;
extern const RecordOf<MoeInitRoutingV3Request> kMoeInitRoutingV3Spec;

struct MoeInitRoutingV3Request {
    int64_t active_num = -1;  // <= 0: no limit.
    int64_t expert_capacity = 0;
    int64_t expert_num = 0;
    int64_t drop_pad_mode = 0;
    int64_t expert_tokens_num_type = 0;
    bool expert_tokens_num_flag = false;
    int64_t quant_mode = -1;
    std::span<const int64_t> active_expert_range = {};  // {start, end}, end excluded; empty: all.
    int64_t row_idx_type = 0;

    ConstTensorView x = {};           // [N, H] fp32, fp16, bf16 or int8
    ConstTensorView expert_idx = {};  // [N, K] int32; a negative id is outside every range.
    ConstTensorView scale = {};       // -1: [N], optional; 0: [1]; 1: [R, H] or [1, H], optional.
    ConstTensorView offset = {};      // 0: [1]

    TensorView expanded_x = {};                     // dtype of x, or int8 when quantised
    TensorView expanded_row_idx = {};               // int32
    TensorView expert_tokens_count_or_cumsum = {};  // int64
    TensorView expanded_scale = {};                 // fp32
};

// The request with its outputs as contiguous views without data; one that is off has rank 0.
// Looks at attributes and inputs only. Errors: kInvalidArgument.
Result<MoeInitRoutingV3Request> with_output_shapes(const MoeInitRoutingV3Request& request);

// Everything that a request can be refused for. Cost: reads expert_idx once.
Result<> check_moe_init_routing_v3(const MoeInitRoutingV3Request& request);

// REQUIRES: num_tokens · top_k fits in 31 bits.
size_t moe_init_routing_v3_workspace_bytes(size_t num_tokens, size_t top_k, size_t expert_num);

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads.
Result<> moe_init_routing_v3(const MoeInitRoutingV3Request& request,
                             std::span<std::byte> workspace,
                             Parallel& parallel);

// The same for callers that made the request themselves: checks nothing, allocates nothing.
// REQUIRES: check_moe_init_routing_v3(request) would find nothing.
void moe_init_routing_v3_checked(const MoeInitRoutingV3Request& request,
                                 std::span<std::byte> workspace,
                                 Parallel& parallel);

}  // namespace afd::ops
