// SPDX-License-Identifier: Apache-2.0

// The record of AttentionWorkerCombine and the check of a request against it.

#include <string>

#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/context_check.h"

namespace afd::ops {
namespace {

using Request = AttentionWorkerCombineRequest;

constexpr int64_t kOffOrOn[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"hidden_size", bind<&Request::hidden_size>(), "", {}, 1, INT32_MAX, "H, values of a row"},
    {"token_dtype",
     bind<&Request::token_dtype>(),
     "0",
     kOffOrOn,
     0,
     0,
     "rows and y are fp16; bf16"},
    {"need_schedule",
     bind<&Request::need_schedule>(),
     "0",
     kOffOrOn,
     0,
     0,
     "combines attention.micro_batch_id; takes the next micro-batch if it is ready"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     bind<&Request::context>(),
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the attention worker's ScheduleContext"},
    {"attention_window",
     bind<&Request::window>(),
     TensorRole::kInput,
     {DType::kUint8},
     "[?]",
     "the session's window"},
    {"expert_scales",
     bind<&Request::expert_scales>(),
     TensorRole::kInput,
     {DType::kFp32},
     "[n, K]",
     "weights"},
    {"expert_ids",
     bind<&Request::expert_ids>(),
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[n, K]",
     "an id outside [0, expert_num) masks its slot"},
    {"layer_id",
     bind<&Request::layer_id>(),
     TensorRole::kInput,
     {DType::kInt32},
     "[1]",
     "the layer of the rows"},
    {"y",
     bind<&Request::y>(),
     TensorRole::kOutput,
     {DType::kFp16, DType::kBf16},
     "[n, hidden_size]",
     "sums, one row a token"},
    {"next_layer_id",
     bind<&Request::next_layer_id>(),
     TensorRole::kOutput,
     {DType::kInt32},
     "[1]",
     "layer_id + 1"},
    {"actual_token_num",
     bind<&Request::actual_token_num>(),
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

DType dtype_of(const AttentionWorkerCombineRequest& r) {
    return r.token_dtype == 0 ? DType::kFp16 : DType::kBf16;
}

void check_context(OperatorCheck& check, const AttentionWorkerCombineRequest& r) {
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    check_dimensions(check, common);
    const uint64_t num_tokens = check.size("n");
    check.require(num_tokens <= common.micro_batch_size,
                  "expert_scales has {} rows; at most micro_batch_size, {}, are allowed",
                  with(num_tokens, common.micro_batch_size));
    check_selected_experts(check, common, check.size("K"));
    check.require(attention.micro_batch_id < common.micro_batch_num,
                  "micro_batch_id is {}; it must be below micro_batch_num, {}",
                  with(attention.micro_batch_id, common.micro_batch_num));
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

}  // namespace

const RecordOf<AttentionWorkerCombineRequest> kAttentionWorkerCombineSpec = {
    {"attention_worker_combine",
     "the weighted sum of the rows that came back to an attention window",
     "y[t] = sum over k of row(m, t, k) * expert_scales[t, k], plus each shared row",
     "docs/specification.md, sections 3 and 5",
     kAttributes,
     kTensors,
     kRules,
     {}}};

Result<> check_attention_worker_combine(const AttentionWorkerCombineRequest& r) {
    OperatorCheck check(kAttentionWorkerCombineSpec, r);
    check.attributes();
    check.tensors();
    check.require(r.y.dtype == dtype_of(r),
                  "y has dtype {}; it must be {} with token_dtype {}",
                  with(name_of(r.y.dtype), name_of(dtype_of(r)), r.token_dtype));
    AFD_TRY(check.finish());
    const int32_t layer_id = *static_cast<const int32_t*>(r.layer_id.data);
    check.require(layer_id >= 0 && layer_id < INT32_MAX,
                  "layer_id is {}; allowed are 0 to {}, so that there is a next one",
                  with(layer_id, INT32_MAX - 1));
    check_context(check, r);
    return check.finish();
}

}  // namespace afd::ops
