// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnWorkerBatching: rows of the FFN window, gathered and sorted by expert.
//
// The rows of `out_num` (session, micro-batch) descriptors become one contiguous block, stable
// ascending by expert key, ties by flat index (row·BS + bs)·K1 + k. With need_schedule 1 a scan of
// the descriptors' flags first fills the scheduler's output buffers (it takes the first micro-batch
// from polling_index on that has a ready session; it never waits and never clears a flag): session,
// micro-batch, layer and expert ids, one list after the other, also where a context lets them
// overlap.
// What is published, acknowledged or returned is the caller's business (schedule/, daemon/).
// It has no second form: the FFN worker's live path calls it (daemon/ffn/window_batcher.h).
//
// Bytes of other processes: ids and flags are read once and judged by range; nothing that an
// attention worker writes can make this read or write outside the buffers.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::schedule {
struct ScheduleContext;
}

namespace afd::ops {

// What a caller by name goes by (docs, tools); ffn_worker_batching() makes the same checks.
struct FfnWorkerBatchingRequest;
extern const RecordOf<FfnWorkerBatchingRequest> kFfnWorkerBatchingSpec;

enum class TokenDtype : int64_t { kFp16 = 0, kBf16 = 1, kInt8 = 2 };

// Seed attributes.
struct FfnWorkerBatchingAttributes {
    int64_t expert_num = 0;  // Of this worker: experts per layer · layer_num, shared ones included.
    int64_t max_out_shape[4] = {0, 0, 0, 0};  // {A, BS, K1, H}
    TokenDtype token_dtype = TokenDtype::kFp16;
    int64_t need_schedule = 0;
    int64_t layer_num = 0;  // 0: ids are unique over layers already.
};

struct FfnWorkerBatchingRequest {
    FfnWorkerBatchingAttributes attributes;
    // need_schedule 1 writes polling_index and out_num; 0 only reads it. The *_buf fields are byte
    // offsets: token_info_buf and token_data_buf into `window`, the others into `control`.
    schedule::ScheduleContext* context = nullptr;
    std::span<const std::byte> window;
    std::span<std::byte> control;
};

// Y = A·BS·K1 rows at most; rows from actual_token_num on are untouched.
struct FfnWorkerBatchingOutput {
    std::span<std::byte> y;              // [Y, H] elements of the token dtype, verbatim.
    std::span<int64_t> group_list;       // [expert_num, 2]: [key, count], ascending, rest [0, 0].
    std::span<int32_t> session_ids;      // [Y]
    std::span<int32_t> micro_batch_ids;  // [Y]
    std::span<int32_t> token_ids;        // [Y] index in the micro-batch.
    std::span<int32_t> expert_offsets;   // [Y] slot k.
    std::span<float> dynamic_scale;      // [Y] with int8, else empty.
    int64_t actual_token_num = 0;
    int64_t num_groups = 0;  // Rows of group_list with a count > 0; not in the seed.
};

size_t ffn_worker_batching_workspace_bytes(const FfnWorkerBatchingAttributes& attributes);

// Errors: kInvalidArgument names the parameter, its value and what is allowed; then no output was
// written.
Result<> ffn_worker_batching(const FfnWorkerBatchingRequest& request,
                             FfnWorkerBatchingOutput& output,
                             std::span<std::byte> workspace,
                             Parallel& parallel);

}  // namespace afd::ops
