// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/attention_worker_combine.h"

#include <atomic>
#include <string>

#include "ops/experts/combine.h"
#include "ops/operators/context_check.h"

namespace afd::ops {
namespace {

constexpr int64_t kOffOrOn[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"hidden_size", AttributeKind::kInt, "", {}, 1, INT32_MAX, "H, values of a row"},
    {"token_dtype", AttributeKind::kInt, "0", kOffOrOn, 0, 0, "rows and y are fp16; bf16"},
    {"need_schedule",
     AttributeKind::kInt,
     "0",
     kOffOrOn,
     0,
     0,
     "combines attention.micro_batch_id; takes the next micro-batch if it is ready"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the attention worker's ScheduleContext"},
    {"attention_window", TensorRole::kInput, {DType::kUint8}, "[?]", "the session's window"},
    {"expert_scales", TensorRole::kInput, {DType::kFp32}, "[n, K]", "weights"},
    {"expert_ids",
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[n, K]",
     "an id outside [0, expert_num) masks its slot"},
    {"layer_id", TensorRole::kInput, {DType::kInt32}, "[1]", "the layer of the rows"},
    {"y",
     TensorRole::kOutput,
     {DType::kFp16, DType::kBf16},
     "[n, hidden_size]",
     "sums, one row a token"},
    {"next_layer_id", TensorRole::kOutput, {DType::kInt32}, "[1]", "layer_id + 1"},
    {"actual_token_num",
     TensorRole::kOptionalOutput,
     {DType::kInt64},
     "[1]",
     "n, or 0 if nothing was taken"},
};

constexpr std::string_view kRules[] = {
    "y has the dtype that token_dtype says.",
    "n is at most micro_batch_size; selected_expert_num - K, the shared experts, is 0 to 4; K is 1 "
    "to 64.",
    "micro_batch_num is 1 to 64; micro_batch_id is below it.",
    "ffn_to_attn_token_size is a positive multiple of 512 that holds hidden_size values.",
    "token_info_buf (with need_schedule 1) and token_data_buf lie inside attention_window.",
};

constexpr uint64_t kTopKMax = 64;
constexpr uint64_t kSharedMax = 4;
DType dtype_of(const AttentionWorkerCombineRequest& r) {
    return r.token_dtype == 0 ? DType::kFp16 : DType::kBf16;
}

void check_context(OperatorCheck& check, const AttentionWorkerCombineRequest& r) {
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    check_dimensions(check, common);
    const uint64_t num_tokens = check.size("n");
    const uint64_t top_k = check.size("K");
    check_dimension(check, "K", top_k, kTopKMax);
    check.require(num_tokens <= common.micro_batch_size,
                  "expert_scales has " + std::to_string(num_tokens) +
                      " rows; at most micro_batch_size, " +
                      std::to_string(common.micro_batch_size) + ", are allowed");
    check.require(
        common.selected_expert_num >= top_k && common.selected_expert_num <= top_k + kSharedMax,
        "selected_expert_num is " + std::to_string(common.selected_expert_num) +
            "; with K = " + std::to_string(top_k) + " allowed are " + std::to_string(top_k) +
            " to " + std::to_string(top_k + kSharedMax));
    check.require(attention.micro_batch_id < common.micro_batch_num,
                  "micro_batch_id is " + std::to_string(attention.micro_batch_id) +
                      "; it must be below micro_batch_num, " +
                      std::to_string(common.micro_batch_num));
    check_token_size(check,
                     "ffn_to_attn_token_size",
                     common.ffn_to_attn_token_size,
                     static_cast<uint64_t>(r.hidden_size) * 2);
    const uint64_t slots = uint64_t{common.micro_batch_size} * common.selected_expert_num;
    check_buffer(check,
                 {"token_data_buf", attention.token_data_buf, attention.token_data_buf_size, 2},
                 {common.micro_batch_num, slots, common.ffn_to_attn_token_size},
                 r.window.size(),
                 "attention_window");
    if (r.need_schedule == 0) return;
    check_buffer(check,
                 {"token_info_buf", attention.token_info_buf, attention.token_info_buf_size, 4},
                 {common.micro_batch_num, slots, sizeof(int32_t)},
                 r.window.size(),
                 "attention_window");
}

bool is_set(const int32_t* flag) {
    // Acquire: partner is the FFN worker's store of the flag after the row.
    return std::atomic_ref<int32_t>(*const_cast<int32_t*>(flag)).load(std::memory_order_acquire) !=
           0;
}

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
                if (id < 0 || id >= int64_t{common.expert_num}) continue;
            }
            if (!is_set(flags + token * num_slots + slot)) return false;
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

const OperatorSpec kAttentionWorkerCombineSpec = {
    "attention_worker_combine",
    "the weighted sum of the rows that came back to an attention window",
    "y[t] = sum over k of row(m, t, k) * expert_scales[t, k], plus each shared row",
    "specification, sections 3 and 5",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<> check_attention_worker_combine(const AttentionWorkerCombineRequest& r) {
    OperatorCheck check(kAttentionWorkerCombineSpec);
    check.attribute("hidden_size", r.hidden_size);
    check.attribute("token_dtype", r.token_dtype);
    check.attribute("need_schedule", r.need_schedule);
    check.tensor("schedule_context", context_tensor(r.context));
    check.tensor("attention_window", bytes_tensor(r.window.data(), r.window.size()));
    check.tensor("expert_scales", r.expert_scales);
    check.tensor("expert_ids", r.expert_ids);
    check.tensor("layer_id", r.layer_id);
    check.tensor("y", r.y);
    check.tensor("next_layer_id", r.next_layer_id);
    check.tensor("actual_token_num", r.actual_token_num);
    check.require(r.y.dtype == dtype_of(r),
                  "y has dtype " + std::string(name_of(r.y.dtype)) + "; it must be " +
                      std::string(name_of(dtype_of(r))) + " with token_dtype " +
                      std::to_string(r.token_dtype));
    AFD_TRY(check.finish());
    check_context(check, r);
    return check.finish();
}

int64_t micro_batch_to_combine(const AttentionWorkerCombineRequest& r) {
    const uint32_t current = r.context->attention.micro_batch_id;
    if (r.need_schedule == 0) return current;
    const uint32_t next = (current + 1) % r.context->common.micro_batch_num;
    if (r.context->control.run_flag == 0 || !is_ready(r, next)) return -1;
    return next;
}

Result<> attention_worker_combine(const AttentionWorkerCombineRequest& r,
                                  std::span<std::byte>,
                                  Parallel& parallel) {
    AFD_TRY(check_attention_worker_combine(r));
    const int64_t micro_batch = micro_batch_to_combine(r);
    auto* num_taken = static_cast<int64_t*>(r.actual_token_num.data);
    const bool has_count = r.actual_token_num.num_elements() > 0;
    if (has_count) *num_taken = micro_batch < 0 ? 0 : static_cast<int64_t>(r.y.shape[0]);
    if (micro_batch < 0) return {};
    r.context->attention.micro_batch_id = static_cast<uint32_t>(micro_batch);
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
