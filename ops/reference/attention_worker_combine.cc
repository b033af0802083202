// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/attention_worker_combine.h"

#include "ops/reference/quantise.h"
#include "schedule/context/schedule_context.h"

namespace afd::ops::reference {
namespace {

float sum_of(const AttentionWorkerCombineRequest& r, size_t m, size_t token, size_t column) {
    const auto& common = r.context->common;
    const size_t top_k = r.expert_scales.shape[1];
    const bool has_ids = r.expert_ids.num_elements() > 0;
    float sum = 0.0f;
    for (size_t slot = 0; slot < common.selected_expert_num; ++slot) {
        float weight = 1.0f;
        if (slot < top_k) {
            const size_t f = token * top_k + slot;
            weight = static_cast<const float*>(r.expert_scales.data)[f];
            const int64_t id = has_ids ? static_cast<const int32_t*>(r.expert_ids.data)[f] : 0;
            if (has_ids && (id < 0 || id >= int64_t{common.expert_num})) continue;
        }
        const size_t place =
            (m * common.micro_batch_size + token) * common.selected_expert_num + slot;
        const std::byte* row = r.window.data() + r.context->attention.token_data_buf +
                               place * common.ffn_to_attn_token_size;
        const float product = element(r.y.dtype, row, column) * weight;
        sum = sum + product;
    }
    return sum;
}

}  // namespace

Result<> attention_worker_combine(const AttentionWorkerCombineRequest& r) {
    AFD_TRY(check_attention_worker_combine(r));
    const int64_t m = micro_batch_to_combine(r);
    const size_t num_tokens = r.y.shape[0];
    if (r.actual_token_num.num_elements() > 0) {
        *static_cast<int64_t*>(r.actual_token_num.data) =
            m < 0 ? 0 : static_cast<int64_t>(num_tokens);
    }
    if (m < 0) return {};
    r.context->attention.micro_batch_id = static_cast<uint32_t>(m);
    for (size_t token = 0; token < num_tokens; ++token) {
        for (size_t column = 0; column < r.y.shape[1]; ++column) {
            set_element(r.y.dtype,
                        r.y.data,
                        token * r.y.shape[1] + column,
                        sum_of(r, static_cast<size_t>(m), token, column));
        }
    }
    *static_cast<int32_t*>(r.next_layer_id.data) =
        *static_cast<const int32_t*>(r.layer_id.data) + 1;
    return {};
}

}  // namespace afd::ops::reference
