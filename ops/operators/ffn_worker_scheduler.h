// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnWorkerScheduler, the stand-alone operator: which ready descriptors an FFN worker executes
// next, written into the context's output buffers.
//
//   out = the descriptors with a non-zero flag that the policy takes, sessions ascending
//
// It is stateless: no clock, so no policy waits, and every non-zero flag is ready; the caller
// clears flags. At most one descriptor of a session is taken.
//   any     each session's first ready micro-batch, from polling_index on; polling_index stays
//   groups  as any, but only for groups of sync_group_size consecutive sessions that are all ready
//   all     the ready sessions of micro-batch polling_index; polling_index moves on, modulo M
// With run_flag 0 nothing is taken and polling_index stays. This is the operator that stands alone;
// the daemon's FFN loop has schedule/dispatch/ready_scan.h with schedule/dispatch/ffn_scheduler.h,
// which know time and acknowledged rounds. Source: docs/specification.md, section 3.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/record/operator_spec.h"
#include "proto/status.h"

namespace afd::schedule {
struct ScheduleContext;
}

namespace afd::ops {

struct FfnWorkerSchedulerRequest;
extern const RecordOf<FfnWorkerSchedulerRequest> kFfnWorkerSchedulerSpec;

struct FfnWorkerSchedulerRequest {
    std::string_view policy = "any";
    int64_t sync_group_size = 1;

    // Writes ffn.out_num and ffn.polling_index. token_info_buf is a byte offset into `window`, the
    // output buffers are offsets into `control`; one of size 0 is skipped.
    schedule::ScheduleContext* context = nullptr;
    std::span<const std::byte> window = {};
    std::span<std::byte> control = {};
};

// Everything that a request can be refused for.
Result<> check_ffn_worker_scheduler(const FfnWorkerSchedulerRequest& request);

// Flags are read with acquire (R2), then layer and ids of what is taken, once.
// Errors: kInvalidArgument; then nothing was written.
Result<> ffn_worker_scheduler(const FfnWorkerSchedulerRequest& request);

}  // namespace afd::ops
