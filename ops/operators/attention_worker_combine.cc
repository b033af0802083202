// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/attention_worker_combine.h"

#include "ops/experts/combine.h"
#include "ops/operators/context_check.h"
#include "ops/operators/context_copy.h"
#include "schedule/wait/flag.h"

namespace afd::ops {
namespace {

bool is_ready(const AttentionWorkerCombineRequest& r, size_t micro_batch) {
    const auto& common = r.context->common;
    const size_t num_slots = common.selected_expert_num;
    const size_t top_k = r.expert_scales.shape[1];
    const auto* flags =
        reinterpret_cast<const int32_t*>(r.window.data() + r.context->attention.token_info_buf) +
        micro_batch * common.micro_batch_size * num_slots;
    const auto* ids = static_cast<const int32_t*>(r.expert_ids.data);
    for (size_t token = 0; token < r.expert_scales.shape[0]; ++token) {
        for (size_t slot = 0; slot < num_slots; ++slot) {
            if (slot < top_k && r.expert_ids.num_elements() > 0) {
                const int64_t id = ids[token * top_k + slot];
                // The rule of attention_to_ffn: waiting for a slot that was never sent would not
                // end.
                if (id < 0 || id >= int64_t{common.expert_num}) continue;
            }
            const int32_t& flag = flags[token * num_slots + slot];
            if (schedule::observe(flag, schedule::Order::kAcquire) == 0) return false;
        }
    }
    return true;
}

template <typename T>
void combine_tokens(const AttentionWorkerCombineRequest& r,
                    size_t micro_batch,
                    Parallel& parallel) {
    const auto& common = r.context->common;
    const size_t num_tokens = r.expert_scales.shape[0];
    const size_t hidden = r.y.shape[1];
    const size_t slot_bytes = common.ffn_to_attn_token_size;
    const size_t token_bytes = slot_bytes * common.selected_expert_num;
    BasicCombineRequest<T> request;
    request.num_tokens = num_tokens;
    request.top_k = r.expert_scales.shape[1];
    request.num_shared = common.selected_expert_num - request.top_k;
    if (r.expert_ids.num_elements() > 0) {
        request.topk_ids = static_cast<const int32_t*>(r.expert_ids.data);
    }
    request.num_experts = common.expert_num;
    request.topk_weights = static_cast<const float*>(r.expert_scales.data);
    request.rows = r.window.data() + r.context->attention.token_data_buf +
                   micro_batch * common.micro_batch_size * token_bytes;
    request.token_stride_bytes = token_bytes;
    request.slot_stride_bytes = slot_bytes;
    request.out = make_rows(static_cast<T*>(r.y.data), num_tokens, hidden);
    combine(request, parallel);
}

}  // namespace

int64_t micro_batch_to_combine(const AttentionWorkerCombineRequest& r) {
    const uint32_t current = r.context->attention.micro_batch_id;
    if (r.need_schedule == 0) return current;
    const uint32_t next = (current + 1) % r.context->common.micro_batch_num;
    if (r.context->control.run_flag == 0 || !is_ready(r, next)) return -1;
    return next;
}

Result<> attention_worker_combine(const AttentionWorkerCombineRequest& request,
                                  std::span<std::byte>,
                                  Parallel& parallel) {
    ContextCopy context(request.context);
    AttentionWorkerCombineRequest r = request;
    r.context = context.get();
    AFD_TRY(check_attention_worker_combine(r));
    const int64_t micro_batch = micro_batch_to_combine(r);
    auto* num_taken = static_cast<int64_t*>(r.actual_token_num.data);
    const bool has_count = r.actual_token_num.num_elements() > 0;
    if (has_count) *num_taken = micro_batch < 0 ? 0 : static_cast<int64_t>(r.y.shape[0]);
    if (micro_batch < 0) return {};
    // Into the shared context, not into the copy: this is an output. Only now, when the step is
    // certain.
    if (r.need_schedule == 1) {
        request.context->attention.micro_batch_id = static_cast<uint32_t>(micro_batch);
    }
    if (r.token_dtype == 0) {
        combine_tokens<Fp16>(r, static_cast<size_t>(micro_batch), parallel);
    } else {
        combine_tokens<Bf16>(r, static_cast<size_t>(micro_batch), parallel);
    }
    const auto* layer_id = static_cast<const int32_t*>(r.layer_id.data);
    *static_cast<int32_t*>(r.next_layer_id.data) = *layer_id + 1;
    return {};
}

}  // namespace afd::ops
