// SPDX-License-Identifier: Apache-2.0
//
// Operators on a ScheduleContext.

#include <algorithm>

#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/attention_worker_scheduler.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/operators/ffn_worker_scheduler.h"
#include "ops/record/operator_check.h"
#include "ops/reference/attention_worker_combine.h"
#include "ops/reference/ffn_worker_batching.h"
#include "schedule/schedule_context.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
namespace {

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

template <typename T>
std::span<T> elements_of(const TensorView& view) {
    return {static_cast<T*>(view.data), view.num_elements()};
}

DType dtype_of(int64_t token_dtype) {
    if (token_dtype == 2) return DType::kInt8;
    return token_dtype == 1 ? DType::kBf16 : DType::kFp16;
}

}  // namespace

Result<> run_ffn_worker_batching(OperatorCall& call) {
    const std::vector<int64_t> out_shape = call.integers("max_out_shape");
    const int64_t token_dtype = call.integer("token_dtype");
    ops::FfnWorkerBatchingRequest request;
    AFD_TRY(call.fill(ops::kFfnWorkerBatchingSpec, request));
    OperatorCheck check(ops::kFfnWorkerBatchingSpec, request);
    check.attribute("token_dtype", token_dtype);
    check.attributes();
    check.require(out_shape.size() == 4 && out_shape[3] > 0,
                  "max_out_shape must be {{A, BS, K1, H}}, all positive");
    check.tensors();
    AFD_TRY(check.finish());
    AFD_ASSIGN(const size_t num_rows, num_rows_max(out_shape));
    std::copy(out_shape.begin(), out_shape.end(), request.attributes.max_out_shape);
    request.attributes.token_dtype = static_cast<ops::TokenDtype>(token_dtype);

    const DType dtype = dtype_of(token_dtype);
    const auto hidden = static_cast<size_t>(out_shape[3]);
    const auto num_experts = static_cast<size_t>(request.attributes.expert_num);
    const auto list = [&](const char* name) {
        return elements_of<int32_t>(call.output(name, DType::kInt32, {num_rows}));
    };
    const TensorView y = call.output("y", dtype, {num_rows, hidden});
    ops::FfnWorkerBatchingOutput output{
        .y = {static_cast<std::byte*>(y.data), y.num_elements() * size_of(dtype)},
        .group_list =
            elements_of<int64_t>(call.output("group_list", DType::kInt64, {num_experts, 2})),
        .session_ids = list("session_ids"),
        .micro_batch_ids = list("micro_batch_ids"),
        .token_ids = list("token_ids"),
        .expert_offsets = list("expert_offsets"),
        .dynamic_scale = {}};
    if (dtype == DType::kInt8) {
        output.dynamic_scale =
            elements_of<float>(call.output("dynamic_scale", DType::kFp32, {num_rows}));
    }
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
    AFD_TRY(call.fill(ops::kAttentionWorkerCombineSpec, r));
    const auto hidden = static_cast<size_t>(std::clamp<int64_t>(r.hidden_size, 0, INT32_MAX));
    r.y = shape_of(dtype_of(r.token_dtype), {extent(r.expert_scales, 0), hidden});
    r.next_layer_id = shape_of(DType::kInt32, {1});
    r.actual_token_num = shape_of(DType::kInt64, {1});
    call.make_outputs(ops::kAttentionWorkerCombineSpec, r);
    if (call.is_reference()) return ops::reference::attention_worker_combine(r);
    return ops::attention_worker_combine(
        r, call.workspace(ops::attention_worker_combine_workspace_bytes()), call.parallel());
}

Result<> run_ffn_worker_scheduler(OperatorCall& call) {
    AFD_TRY(call.refuse_reference());
    ops::FfnWorkerSchedulerRequest r;
    AFD_TRY(call.fill(ops::kFfnWorkerSchedulerSpec, r));
    return ops::ffn_worker_scheduler(r);
}

Result<> run_attention_worker_scheduler(OperatorCall& call) {
    AFD_TRY(call.refuse_reference());
    ops::AttentionWorkerSchedulerRequest r;
    AFD_TRY(call.fill(ops::kAttentionWorkerSchedulerSpec, r));
    r.taken = shape_of(DType::kInt32, {1});
    call.make_outputs(ops::kAttentionWorkerSchedulerSpec, r);
    return ops::attention_worker_scheduler(r);
}

}  // namespace afd::tools
