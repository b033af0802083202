// SPDX-License-Identifier: Apache-2.0

// The record of FfnWorkerScheduler and the check of a request against it.

#include <string>

#include "ops/operators/context_check.h"
#include "ops/operators/ffn_worker_scheduler.h"

namespace afd::ops {
namespace {

using Request = FfnWorkerSchedulerRequest;

constexpr std::string_view kPolicies[] = {"any", "groups", "all"};

constexpr AttributeSpec kAttributes[] = {
    {.name = "policy",
     .member = bind<&Request::policy>(),
     .default_value = "\"any\"",
     .choices = {},
     .least = 0,
     .most = 0,
     .meaning = "each session's first ready micro-batch; that of complete groups of sessions; the "
                "ready sessions of micro-batch polling_index",
     .words = kPolicies},
    {"sync_group_size",
     bind<&Request::sync_group_size>(),
     "1",
     {},
     1,
     schedule::kSessionsMax,
     "sessions of a group; used with policy groups"},
};

constexpr TensorSpec kTensors[] = {
    {"schedule_context",
     bind<&Request::context>(),
     TensorRole::kInPlace,
     {DType::kInt8},
     "[1024]",
     "the FFN worker's ScheduleContext; out_num and polling_index are written"},
    {"ffn_window",
     bind<&Request::window>(),
     TensorRole::kInput,
     {DType::kUint8},
     "[?]",
     "token_info_buf points into it"},
    {"ffn_control",
     bind<&Request::control>(),
     TensorRole::kInPlace,
     {DType::kUint8},
     "[?]",
     "layer_ids_buf, session_ids_buf, micro_batch_ids_buf and expert_ids_buf point into it"},
};

constexpr std::string_view kRules[] = {
    "A is 1 to 1024, M 1 to 64, K1 1 to 68; polling_index is below M.",
    "token_info_buf lies inside ffn_window; an output buffer lies inside ffn_control or has size "
    "0 and is skipped.",
};

}  // namespace

constinit const RecordOf<FfnWorkerSchedulerRequest> kFfnWorkerSchedulerSpec = {
    {"ffn_worker_scheduler",
     "which ready descriptors an FFN worker executes next",
     "out = descriptors with a non-zero flag that the policy takes, sessions ascending",
     "docs/specification.md, section 3",
     kAttributes,
     kTensors,
     kRules,
     {},
     ""}};

Result<> check_ffn_worker_scheduler(const FfnWorkerSchedulerRequest& r) {
    OperatorCheck check(kFfnWorkerSchedulerSpec, r);
    check.attributes();
    check.tensors();
    AFD_TRY(check.finish());
    const auto& ffn = r.context->ffn;
    const auto& common = r.context->common;
    check_dimensions(check, common);
    AFD_TRY(check.finish());
    const uint64_t slots = uint64_t{common.micro_batch_size} * common.selected_expert_num;
    check.require(ffn.polling_index < common.micro_batch_num,
                  "polling_index is {}; it must be below micro_batch_num, {}",
                  with(ffn.polling_index, common.micro_batch_num));
    check_buffer(check,
                 {"token_info_buf", ffn.token_info_buf, ffn.token_info_buf_size, 4},
                 {common.session_num, common.micro_batch_num, 2 + slots, sizeof(int32_t)},
                 r.window.size(),
                 "ffn_window");
    const auto list = [&](const char* name, uint64_t offset, uint64_t size, uint64_t row) {
        if (size == 0) return;
        check_buffer(check,
                     {name, offset, size, 4},
                     {common.session_num, row, sizeof(int32_t)},
                     r.control.size(),
                     "ffn_control");
    };
    list("layer_ids_buf", ffn.layer_ids_buf, ffn.layer_ids_buf_size, 1);
    list("session_ids_buf", ffn.session_ids_buf, ffn.session_ids_buf_size, 1);
    list("micro_batch_ids_buf", ffn.micro_batch_ids_buf, ffn.micro_batch_ids_buf_size, 1);
    list("expert_ids_buf", ffn.expert_ids_buf, ffn.expert_ids_buf_size, slots);
    return check.finish();
}

}  // namespace afd::ops
