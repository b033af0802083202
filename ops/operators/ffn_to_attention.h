// SPDX-License-Identifier: Apache-2.0
#pragma once

// FFNToAttention: result rows, written back into the windows of the sessions that they belong to.
//
//   window[session_ids[i]].data[micro_batch_ids[i]][token_ids[i]][expert_offsets[i]]
//       = x[i] →token_dtype, then its flag = rounds[session, micro-batch], for i < actual_token_num
//
// With routing_weights the row's fp32 weight follows its values. A row's flag is stored after the
// row. The four index lists are those of FfnWorkerBatching. Acknowledging the round is the caller's
// business. This is the operator that stands alone; the daemon returns rows with put_result of
// schedule/shared_memory/shm_transport.h. Source: docs/specification.md, sections 1 and 4.

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

struct FfnToAttentionRequest;
extern const RecordOf<FfnToAttentionRequest> kFfnToAttentionSpec;

struct FfnToAttentionRequest {
    int64_t token_dtype = 0;  // 0 fp16, 1 bf16: what the window's rows hold

    // Dimensions; attention.token_info_buf and token_data_buf are byte offsets into every window.
    const schedule::ScheduleContext* context = nullptr;
    std::span<const std::span<std::byte>> attention_windows = {};  // [A], index is the session

    ConstTensorView x;                      // [Y, H] bf16, fp16 or fp32
    ConstTensorView session_ids;            // [Y] int32
    ConstTensorView micro_batch_ids;        // [Y] int32
    ConstTensorView token_ids;              // [Y] int32
    ConstTensorView expert_offsets;         // [Y] int32, slot k
    ConstTensorView actual_token_num = {};  // [1] int64, at most Y; not given: Y
    ConstTensorView routing_weights = {};   // [Y] fp32, router = ffn
    ConstTensorView rounds = {};            // [A, M] int32, not 0; not given: 1
};

// Everything that a request can be refused for, but slots named twice.
Result<> check_ffn_to_attention(const FfnToAttentionRequest& request);

// The rows that are there. REQUIRES: the request was checked, or has no actual_token_num.
size_t num_rows_of(const FfnToAttentionRequest& request);

size_t ffn_to_attention_workspace_bytes(size_t num_rows);

// Errors: kInvalidArgument, also for a slot named twice; then nothing was written. Bytes do not
// depend on the threads.
Result<> ffn_to_attention(const FfnToAttentionRequest& request,
                          std::span<std::byte> workspace,
                          Parallel& parallel);

}  // namespace afd::ops
