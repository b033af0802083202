// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionWorkerScheduler, the stand-alone operator: the next micro-batch whose rows are all back.
//
//   m = (micro_batch_id + 1) mod M; if every slot of its first num_tokens tokens has a non-zero
//   flag: micro_batch_id = m, taken = m; else taken = -1
//
// It never waits and clears no flag. With run_flag 0 nothing is taken. This is the
// operator that stands alone; the daemon's attention loop takes micro-batches in its own order, by
// schedule/dispatch/dispatch_lane.h. Source: docs/specification.md, section 3.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::schedule {
struct ScheduleContext;
}

namespace afd::ops {

struct AttentionWorkerSchedulerRequest;
extern const RecordOf<AttentionWorkerSchedulerRequest> kAttentionWorkerSchedulerSpec;

struct AttentionWorkerSchedulerRequest {
    int64_t num_tokens = -1;  // Of the micro-batch; -1: micro_batch_size.

    // Writes attention.micro_batch_id. token_info_buf is a byte offset into `window`.
    schedule::ScheduleContext* context = nullptr;
    std::span<const std::byte> window = {};

    TensorView taken = {};  // [1] int32: the micro-batch, or -1; not in the seed.
};

// Everything that a request can be refused for.
Result<> check_attention_worker_scheduler(const AttentionWorkerSchedulerRequest& request);

// Flags are read with acquire (R5). Errors: kInvalidArgument; then nothing was written.
Result<> attention_worker_scheduler(const AttentionWorkerSchedulerRequest& request);

}  // namespace afd::ops
