// SPDX-License-Identifier: Apache-2.0
//
// Operators on a ScheduleContext: its 1024 bytes are a tensor, the segments that its buffers point
// into are tensors, too, and buffer fields are byte offsets into these.

#include <algorithm>

#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/attention_worker_scheduler.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/operators/ffn_worker_scheduler.h"
#include "ops/record/operator_check.h"
#include "ops/reference/attention_worker_combine.h"
#include "ops/reference/ffn_worker_batching.h"
#include "schedule/schedule_context.h"
#include "tools/afd-op/context_call.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
namespace {

using ops::ConstTensorView;
using ops::DType;
using ops::OperatorCheck;
using ops::TensorView;

// A·BS·K1 of max_out_shape, or an error rather than an absurd allocation.
Result<size_t> num_rows_max(const std::vector<int64_t>& shape) {
    constexpr size_t kRowsMax = INT32_MAX;
    size_t rows = 1;
    for (size_t i = 0; i < 3; ++i) {
        if (shape[i] < 1 || static_cast<size_t>(shape[i]) > kRowsMax / rows) {
            return Error{Code::kInvalidArgument,
                         "ffn_worker_batching: max_out_shape[" + std::to_string(i) + "] is " +
                             std::to_string(shape[i]) +
                             "; it must be positive and A * BS * K1 at most 2147483647"};
        }
        rows *= static_cast<size_t>(shape[i]);
    }
    return rows;
}

DType dtype_of(int64_t token_dtype) {
    if (token_dtype == 2) return DType::kInt8;
    return token_dtype == 1 ? DType::kBf16 : DType::kFp16;
}

}  // namespace

Result<> run_ffn_worker_batching(OperatorCall& call) {
    const std::vector<int64_t> out_shape = call.integers("max_out_shape");
    AFD_ASSIGN(schedule::ScheduleContext* const context,
               context_in_place(call, ops::kFfnWorkerBatchingSpec));
    const TensorView control = call.in_place("ffn_control");
    const ConstTensorView window = call.input("ffn_window");
    OperatorCheck check(ops::kFfnWorkerBatchingSpec);
    for (const char* name : {"expert_num", "token_dtype", "need_schedule", "layer_num"}) {
        check.attribute(name, call.integer(name));
    }
    check.require(out_shape.size() == 4 && out_shape[3] > 0,
                  "max_out_shape must be {A, BS, K1, H}, all positive");
    check.tensor("ffn_window", window);
    check.tensor("ffn_control", control);
    AFD_TRY(check.finish());
    AFD_ASSIGN(const size_t num_rows, num_rows_max(out_shape));

    const ops::FfnWorkerBatchingRequest request{
        .attributes = {.expert_num = call.integer("expert_num"),
                       .max_out_shape = {out_shape[0], out_shape[1], out_shape[2], out_shape[3]},
                       .token_dtype = static_cast<ops::TokenDtype>(call.integer("token_dtype")),
                       .need_schedule = call.integer("need_schedule"),
                       .layer_num = call.integer("layer_num")},
        .context = context,
        .window = bytes_of(window),
        .control = elements_of<std::byte>(control)};
    const DType dtype = dtype_of(call.integer("token_dtype"));
    const auto hidden = static_cast<size_t>(out_shape[3]);
    const auto num_experts = static_cast<size_t>(call.integer("expert_num"));
    const auto list = [&](const char* name) {
        return elements_of<int32_t>(call.output(name, DType::kInt32, {num_rows}));
    };
    const TensorView y = call.output("y", dtype, {num_rows, hidden});
    const size_t num_scales = dtype == DType::kInt8 ? num_rows : 0;
    ops::FfnWorkerBatchingOutput output{
        .y = {static_cast<std::byte*>(y.data), y.num_elements() * size_of(dtype)},
        .group_list =
            elements_of<int64_t>(call.output("group_list", DType::kInt64, {num_experts, 2})),
        .session_ids = list("session_ids"),
        .micro_batch_ids = list("micro_batch_ids"),
        .token_ids = list("token_ids"),
        .expert_offsets = list("expert_offsets"),
        .dynamic_scale =
            elements_of<float>(call.output("dynamic_scale", DType::kFp32, {num_scales}))};
    AFD_TRY(call.is_reference()
                ? ops::reference::ffn_worker_batching(request, output)
                : ops::ffn_worker_batching(
                      request,
                      output,
                      call.workspace(ops::ffn_worker_batching_workspace_bytes(request.attributes)),
                      call.parallel()));
    elements_of<int64_t>(call.output("actual_token_num", DType::kInt64, {1}))[0] =
        output.actual_token_num;
    return {};
}

Result<> run_attention_worker_combine(OperatorCall& call) {
    ops::AttentionWorkerCombineRequest r;
    r.hidden_size = call.integer("hidden_size");
    r.token_dtype = call.integer("token_dtype");
    r.need_schedule = call.integer("need_schedule");
    AFD_ASSIGN(r.context, context_in_place(call, ops::kAttentionWorkerCombineSpec));
    r.window = bytes_of(call.input("attention_window"));
    r.expert_scales = call.input("expert_scales");
    r.expert_ids = call.input("expert_ids");
    r.layer_id = call.input("layer_id");
    const size_t num_tokens = r.expert_scales.rank == 0 ? 0 : r.expert_scales.shape[0];
    const auto hidden = static_cast<size_t>(std::clamp<int64_t>(r.hidden_size, 0, INT32_MAX));
    r.y = call.output("y", dtype_of(r.token_dtype), {num_tokens, hidden});
    r.next_layer_id = call.output("next_layer_id", DType::kInt32, {1});
    r.actual_token_num = call.output("actual_token_num", DType::kInt64, {1});
    if (call.is_reference()) return ops::reference::attention_worker_combine(r);
    return ops::attention_worker_combine(
        r, call.workspace(ops::attention_worker_combine_workspace_bytes()), call.parallel());
}

Result<> run_ffn_worker_scheduler(OperatorCall& call) {
    AFD_TRY(refuse_reference(call, ops::kFfnWorkerSchedulerSpec));
    const std::string policy = call.word("policy");
    ops::FfnWorkerSchedulerRequest r;
    r.policy = policy;
    r.sync_group_size = call.integer("sync_group_size");
    AFD_ASSIGN(r.context, context_in_place(call, ops::kFfnWorkerSchedulerSpec));
    r.window = bytes_of(call.input("ffn_window"));
    r.control = elements_of<std::byte>(call.in_place("ffn_control"));
    return ops::ffn_worker_scheduler(r);
}

Result<> run_attention_worker_scheduler(OperatorCall& call) {
    AFD_TRY(refuse_reference(call, ops::kAttentionWorkerSchedulerSpec));
    ops::AttentionWorkerSchedulerRequest r;
    r.num_tokens = call.integer("num_tokens");
    AFD_ASSIGN(r.context, context_in_place(call, ops::kAttentionWorkerSchedulerSpec));
    r.window = bytes_of(call.input("attention_window"));
    r.taken = call.output("taken", DType::kInt32, {1});
    return ops::attention_worker_scheduler(r);
}

}  // namespace afd::tools
