// SPDX-License-Identifier: Apache-2.0
#pragma once

// Grouped expert FFN: rows sorted by expert key, each through its expert's MLP.
//
//   bf16, int4 and fp8 weights, here with silu:
//   gate = x·Wgateᵀ →bf16, up = x·Wupᵀ →bf16, h = (silu(gate)·up) →bf16, y = h·Wdownᵀ →bf16
//   int8 weights, and int4 ones with Int4Rows::kInt8: the same of the quantised x, with the
//   expert's smooth scales if it has them, and of the quantised h (ops/format/weight_format.h,
//   int4_rows.h).
//   With an output gate, y = (y · sigmoid(x·gate)) →bf16, of the x that the gate projection takes:
//   quantised where that is, then without its smooth scales (ops/experts/output_gate.h).
//   Other activations: ops/format/expert_activation.h.
//   A bias is added to a sum before its rounding.
// A row's bits depend on the row and its expert only. Work is cut by expert and by column panel.
// The live path, on packed weights; ops/operators/grouped_matmul_swiglu.h is the operator that
// stands alone.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/experts/expert_table.h"
#include "ops/format/int8_rows.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/stage_profile.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"

namespace afd::ops {

// A row of a group list: FfnWorkerBatching's group_list is an array of these.
struct ExpertGroup {
    int64_t key = 0;
    int64_t count = 0;
};
static_assert(sizeof(ExpertGroup) == 16, "group_list is [expert_num, 2] int64");

struct GroupedFfnRequest {
    const ExpertTable* experts = nullptr;
    std::span<const ExpertGroup> groups;  // Keys ascending; rows follow each other in x.
    Rows<const Bf16> x;                   // [num_rows, hidden], sorted by key
    Int8Rows x_int8 = {};                 // Instead of x, quantised already; gate and up are int8.
    Rows<Bf16> y;                         // out [at least num_rows, hidden]
    // First row of each group in x and y; null: the groups follow each other.
    const int32_t* first_rows = nullptr;
    // Row i of x goes to row row_index[i] of y; null: row i. Rows that no index names are
    // untouched.
    const int32_t* row_index = nullptr;
    StageProfile* profile = nullptr;  // Optional: gets the time of kQuantise, kGemm1 and kGemm2.
};

size_t grouped_ffn_workspace_bytes(const ExpertTable& experts,
                                   size_t num_rows_max,
                                   size_t num_groups_max);

// Errors: kInvalidArgument: a key outside the table or without an expert, keys not ascending,
// counts beyond x, x_int8 for an expert without int8 weights. Rows of y beyond the last group are
// untouched.
Result<> grouped_ffn(const GroupedFfnRequest& request,
                     std::span<std::byte> workspace,
                     Parallel& parallel);

}  // namespace afd::ops
