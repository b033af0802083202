// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/attention_worker_scheduler.h"

#include "ops/operators/context_check.h"
#include "ops/operators/context_copy.h"
#include "schedule/context/schedule_context.h"
#include "schedule/wait/flag.h"

namespace afd::ops {
namespace {

bool is_back(const AttentionWorkerSchedulerRequest& r, size_t micro_batch) {
    const auto& common = r.context->common;
    const size_t num_tokens =
        r.num_tokens < 0 ? common.micro_batch_size : static_cast<size_t>(r.num_tokens);
    const size_t num_slots = common.selected_expert_num;
    const auto* flags =
        reinterpret_cast<const int32_t*>(r.window.data() + r.context->attention.token_info_buf) +
        micro_batch * common.micro_batch_size * num_slots;
    for (size_t slot = 0; slot < num_tokens * num_slots; ++slot) {
        // Any non-zero flag counts: without the round of the last dispatch this operator cannot
        // tell an old flag from a new one. Its caller clears them.
        if (schedule::observe(flags[slot], schedule::Order::kAcquire) == 0) return false;
    }
    return true;
}

}  // namespace

Result<> attention_worker_scheduler(const AttentionWorkerSchedulerRequest& request) {
    ContextCopy context(request.context);
    AttentionWorkerSchedulerRequest r = request;
    r.context = context.get();
    AFD_TRY(check_attention_worker_scheduler(r));
    auto* taken = static_cast<int32_t*>(r.taken.data);
    *taken = -1;
    if (r.context->control.run_flag == 0) return {};
    const uint32_t next =
        (r.context->attention.micro_batch_id + 1) % r.context->common.micro_batch_num;
    if (!is_back(r, next)) return {};
    // The caller's context; `r` has a copy.
    request.context->attention.micro_batch_id = next;
    *taken = static_cast<int32_t>(next);
    return {};
}

}  // namespace afd::ops
