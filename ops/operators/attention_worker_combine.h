// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionWorkerCombine: the weighted sum of the rows that came back to an attention window.
//
//   y[t] = Σ_k row(m, t, k)·expert_scales[t, k] + Σ_j row(m, t, K + j)
//   m = attention.micro_batch_id
//
// The arithmetic is that of ops/experts/combine.h. An id outside [0, common.expert_num) masks its
// slot, whose row is neither awaited nor read; common.expert_num is E+S, so the slots are those
// that attention_to_ffn.h sends, picks of a shared expert among them. With need_schedule 1 the
// attention scheduler's step comes first: m is (micro_batch_id + 1) mod M if every used slot's flag
// is non-zero, and micro_batch_id advances to it; otherwise, or with run_flag 0, nothing is taken:
// y, next_layer_id and micro_batch_id stay as they are and actual_token_num is 0. It never waits
// and clears no flag. The daemon combines with ops/experts/combine.h when its lane is ready; this
// is the operator that stands alone. Source: docs/specification.md, sections 3 and 5.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::schedule {
struct ScheduleContext;
}

namespace afd::ops {

struct AttentionWorkerCombineRequest;
extern const RecordOf<AttentionWorkerCombineRequest> kAttentionWorkerCombineSpec;

struct AttentionWorkerCombineRequest {
    int64_t hidden_size = 0;    // H
    int64_t token_dtype = 0;    // 0 fp16, 1 bf16
    int64_t need_schedule = 0;  // 1: the scheduler's step first.

    // need_schedule 1 writes attention.micro_batch_id. attention.token_info_buf and token_data_buf
    // are byte offsets into `window`.
    schedule::ScheduleContext* context = nullptr;
    std::span<const std::byte> window = {};

    ConstTensorView expert_scales;    // [n, K] fp32, n <= BS
    ConstTensorView expert_ids = {};  // [n, K] int32; an id outside [0, expert_num) masks its slot.
    ConstTensorView layer_id;         // [1] int32

    TensorView y;                      // [n, H] of token_dtype
    TensorView next_layer_id;          // [1] int32: layer_id + 1
    TensorView actual_token_num = {};  // [1] int64: n, or 0 if nothing was taken; not in the seed.
};

// Everything that a request can be refused for.
Result<> check_attention_worker_combine(const AttentionWorkerCombineRequest& request);

// Needs no scratch.
constexpr size_t attention_worker_combine_workspace_bytes() {
    return 0;
}

// The scheduler's step, if it is asked for: the micro-batch to combine, or -1 if none is taken.
// Changes nothing. REQUIRES: the request was checked.
int64_t micro_batch_to_combine(const AttentionWorkerCombineRequest& request);

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads.
Result<> attention_worker_combine(const AttentionWorkerCombineRequest& request,
                                  std::span<std::byte> workspace,
                                  Parallel& parallel);

}  // namespace afd::ops
