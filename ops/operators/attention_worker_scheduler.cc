// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/attention_worker_scheduler.h"

#include <atomic>

#include "ops/operators/context_check.h"
#include "ops/record/operator_check.h"
#include "schedule/schedule_context.h"

namespace afd::ops {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"num_tokens",
     AttributeKind::kInt,
     "-1",
     {},
     -1,
     INT32_MAX,
     "tokens of the micro-batch whose slots must be back; -1: micro_batch_size"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the attention worker's ScheduleContext; micro_batch_id is written"},
    {"attention_window",
     TensorRole::kInput,
     {DType::kUint8},
     "[?]",
     "flags: token_info_buf points into it"},
    {"taken", TensorRole::kOutput, {DType::kInt32}, "[1]", "the micro-batch taken, or -1"},
};

constexpr std::string_view kRules[] = {
    "M is 1 to 64, K1 1 to 68; micro_batch_id is below M; num_tokens is at most micro_batch_size.",
    "token_info_buf lies inside attention_window.",
};

Result<> judge(const AttentionWorkerSchedulerRequest& r) {
    OperatorCheck check(kAttentionWorkerSchedulerSpec);
    check.attribute("num_tokens", r.num_tokens);
    check.tensor("schedule_context", context_tensor(r.context));
    check.tensor("attention_window", bytes_tensor(r.window.data(), r.window.size()));
    check.tensor("taken", r.taken);
    AFD_TRY(check.finish());
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    check_dimensions(check, common);
    check.require(r.num_tokens <= int64_t{common.micro_batch_size},
                  "num_tokens is " + std::to_string(r.num_tokens) + "; at most micro_batch_size, " +
                      std::to_string(common.micro_batch_size) + ", are allowed");
    check.require(attention.micro_batch_id < common.micro_batch_num,
                  "micro_batch_id is " + std::to_string(attention.micro_batch_id) +
                      "; it must be below micro_batch_num, " +
                      std::to_string(common.micro_batch_num));
    check_buffer(check,
                 {"token_info_buf", attention.token_info_buf, attention.token_info_buf_size, 4},
                 {common.micro_batch_num, common.micro_batch_size, common.selected_expert_num, 4},
                 r.window.size(),
                 "attention_window");
    return check.finish();
}

bool is_set(const int32_t* flag) {
    // Acquire: partner is the FFN worker's store of the flag after the row.
    return std::atomic_ref<int32_t>(*const_cast<int32_t*>(flag)).load(std::memory_order_acquire) !=
           0;
}

bool is_back(const AttentionWorkerSchedulerRequest& r, size_t micro_batch) {
    const auto& common = r.context->common;
    const size_t num_tokens =
        r.num_tokens < 0 ? common.micro_batch_size : static_cast<size_t>(r.num_tokens);
    const size_t num_slots = common.selected_expert_num;
    const auto* flags =
        reinterpret_cast<const int32_t*>(r.window.data() + r.context->attention.token_info_buf) +
        micro_batch * common.micro_batch_size * num_slots;
    for (size_t slot = 0; slot < num_tokens * num_slots; ++slot) {
        if (!is_set(flags + slot)) return false;
    }
    return true;
}

}  // namespace

constinit const OperatorSpec kAttentionWorkerSchedulerSpec = {
    "attention_worker_scheduler",
    "the next micro-batch whose rows are all back",
    "taken = (micro_batch_id + 1) mod M if all of its flags are non-zero, else -1",
    "specification, section 3",
    kAttributes,
    kTensors,
    kRules,
    {}};

Result<> attention_worker_scheduler(const AttentionWorkerSchedulerRequest& r) {
    AFD_TRY(judge(r));
    auto& attention = r.context->attention;
    auto* taken = static_cast<int32_t*>(r.taken.data);
    *taken = -1;
    if (r.context->control.run_flag == 0) return {};
    const uint32_t next = (attention.micro_batch_id + 1) % r.context->common.micro_batch_num;
    if (!is_back(r, next)) return {};
    attention.micro_batch_id = next;
    *taken = static_cast<int32_t>(next);
    return {};
}

}  // namespace afd::ops
