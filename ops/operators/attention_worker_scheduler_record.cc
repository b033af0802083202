// SPDX-License-Identifier: Apache-2.0

// The record of AttentionWorkerScheduler and the check of a request against it.

#include <string>

#include "ops/operators/attention_worker_scheduler.h"
#include "ops/operators/context_check.h"

namespace afd::ops {
namespace {

using Request = AttentionWorkerSchedulerRequest;

constexpr AttributeSpec kAttributes[] = {
    {"num_tokens",
     bind<&Request::num_tokens>(),
     "-1",
     {},
     -1,
     INT32_MAX,
     "tokens of the micro-batch whose slots must be back; -1: micro_batch_size"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     bind<&Request::context>(),
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the attention worker's ScheduleContext; micro_batch_id is written"},
    {"attention_window",
     bind<&Request::window>(),
     TensorRole::kInput,
     {DType::kUint8},
     "[?]",
     "flags: token_info_buf points into it"},
    {"taken",
     bind<&Request::taken>(),
     TensorRole::kOutput,
     {DType::kInt32},
     "[1]",
     "the micro-batch taken, or -1"},
};

constexpr std::string_view kRules[] = {
    "M is 1 to 64, K1 1 to 68; micro_batch_id is below M; num_tokens is at most micro_batch_size.",
    "token_info_buf lies inside attention_window.",
};

}  // namespace

constinit const RecordOf<AttentionWorkerSchedulerRequest> kAttentionWorkerSchedulerSpec = {
    {"attention_worker_scheduler",
     "the next micro-batch whose rows are all back",
     "taken = (micro_batch_id + 1) mod M if all of its flags are non-zero, else -1",
     "docs/specification.md, section 3",
     kAttributes,
     kTensors,
     kRules,
     {},
     ""}};

Result<> check_attention_worker_scheduler(const AttentionWorkerSchedulerRequest& r) {
    OperatorCheck check(kAttentionWorkerSchedulerSpec, r);
    check.attributes();
    check.tensors();
    AFD_TRY(check.finish());
    const auto& common = r.context->common;
    const auto& attention = r.context->attention;
    check_dimensions(check, common);
    check.require(r.num_tokens <= int64_t{common.micro_batch_size},
                  "num_tokens is {}; at most micro_batch_size, {}, are allowed",
                  with(r.num_tokens, common.micro_batch_size));
    check.require(attention.micro_batch_id < common.micro_batch_num,
                  "micro_batch_id is {}; it must be below micro_batch_num, {}",
                  with(attention.micro_batch_id, common.micro_batch_num));
    check_buffer(check,
                 {"token_info_buf", attention.token_info_buf, attention.token_info_buf_size, 4},
                 {common.micro_batch_num, common.micro_batch_size, common.selected_expert_num, 4},
                 r.window.size(),
                 "attention_window");
    return check.finish();
}

}  // namespace afd::ops
