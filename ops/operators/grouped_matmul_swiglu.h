// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupedMatmulSwiglu(Quant): the first half of a grouped expert FFN on plain tensors.
//
//   gate = x·W[e][:, :I] →bf16, up = x·W[e][:, I:] →bf16, output = (silu(gate)·up) →bf16
//
// Row i of x belongs to the expert e of its group. int8 rows and weights: the exact int32 sum
// ·x_scale[i]·weight_scale[e, n], in that order, before →bf16; with quant_mode 1 the bf16 row is
// quantised again (ops/linear/quantise.h). bf16: fp32 chains in the order of the numeric class, the
// same bits as swiglu() of ops/linear/linear.h. Rows after the last group are untouched. Weights
// are packed anew in each call: this is the operator that stands alone; the daemon, which keeps its
// weights packed, has ops/experts/grouped_ffn.h.
// Source: docs/specification.md, sections 6 and 10.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/format/numeric_class.h"
#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct GroupedMatmulSwigluRequest;
extern const RecordOf<GroupedMatmulSwigluRequest> kGroupedMatmulSwigluSpec;

struct GroupedMatmulSwigluRequest {
    int64_t group_list_type = 0;  // 0 cumulative, 1 counts, 2 pairs [expert, count]
    int64_t quant_mode = -1;      // -1 output bf16; 1 int8 with output_scale
    NumericClass numeric_class = best_numeric_class();  // Not an attribute of the operator.

    ConstTensorView x;                  // [M, H] bf16, or int8 with x_scale
    ConstTensorView weight;             // [E, H, 2·I], dtype of x
    ConstTensorView group_list;         // int64 [E], or [G, 2] with type 2
    ConstTensorView x_scale = {};       // [M] fp32, with int8
    ConstTensorView weight_scale = {};  // [E, 2·I] fp32, with int8

    TensorView output;             // [M, I] bf16, or int8 with quant_mode 1
    TensorView output_scale = {};  // [M] fp32, with quant_mode 1
};

// Everything that a request can be refused for.
Result<> check_grouped_matmul_swiglu(const GroupedMatmulSwigluRequest& request);

// Of a request that was checked.
size_t grouped_matmul_swiglu_workspace_bytes(const GroupedMatmulSwigluRequest& request,
                                             unsigned num_threads);

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads, nor those
// of a row on the other rows. REQUIRES: supported(numeric_class).
Result<> grouped_matmul_swiglu(const GroupedMatmulSwigluRequest& request,
                               std::span<std::byte> workspace,
                               Parallel& parallel);

}  // namespace afd::ops
