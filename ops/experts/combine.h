// SPDX-License-Identifier: Apache-2.0
#pragma once

// Combine: the weighted sum of a token's expert rows (AttentionWorkerCombine's arithmetic).
//
// acc = +0 in fp32; for k = 0 ... top_k-1, masked slots neither read nor added:
// acc = acc + float(row_k)·weight_k (product rounded, then sum rounded); then each shared row
// with weight 1; →T once. All compositions (windows, colocated, fused) use this one function, with
// T bf16: it is the live path. The operators that stand alone are
// ops/operators/attention_worker_combine.h, which calls this one too, also with fp16 rows, and
// ops/operators/moe_finalize_routing.h, which has more terms.

#include <cstddef>
#include <cstdint>

#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

template <typename T>
struct BasicCombineRequest {
    size_t num_tokens = 0;
    size_t top_k = 0;
    size_t num_shared = 0;  // Slots top_k ... top_k + num_shared - 1, weight 1.
    // [num_tokens, top_k]; outside [0, num_experts) masks; null: no id masks.
    const int32_t* topk_ids = nullptr;
    int64_t num_experts = 0;
    const float* topk_weights = nullptr;  // [num_tokens, top_k]

    // Where row (token, slot) is: rows + token·token_stride_bytes + slot·slot_stride_bytes, or with
    // row_index [num_tokens, top_k + num_shared]: rows + row_index·slot_stride_bytes, a negative
    // index masks. Rows are 2-byte aligned.
    const std::byte* rows = nullptr;
    size_t token_stride_bytes = 0;
    size_t slot_stride_bytes = 0;
    const int32_t* row_index = nullptr;
    // Or each row's own address, [num_tokens, top_k + num_shared]; null masks.
    const std::byte* const* row_address = nullptr;
    // Shared rows kept apart: row token·num_shared + j. The tables above then have top_k columns.
    Rows<const T> shared_rows = {};

    Rows<T> out;  // [num_tokens, hidden]; must not overlap the rows.
};
using CombineRequest = BasicCombineRequest<Bf16>;

void combine(const CombineRequest& request, Parallel& parallel);
void combine(const BasicCombineRequest<Fp16>& request, Parallel& parallel);

}  // namespace afd::ops
