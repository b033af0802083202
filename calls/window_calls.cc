// SPDX-License-Identifier: Apache-2.0
//
// Operators on a ScheduleContext.

#include <algorithm>

#include "calls/prepare_operators.h"
#include "ops/operators/attention_worker_combine.h"
#include "ops/operators/attention_worker_scheduler.h"
#include "ops/operators/ffn_worker_batching.h"
#include "ops/operators/ffn_worker_batching_shape.h"
#include "ops/operators/ffn_worker_scheduler.h"
#include "ops/record/operator_check.h"
#include "ops/reference/attention_worker_combine.h"
#include "ops/reference/ffn_worker_batching.h"
#include "schedule/context/schedule_context.h"

namespace afd::calls {
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

// The request of the operator beside its outputs as tensors, which it takes as spans.
struct BatchingCall {
    ops::FfnWorkerBatchingRequest request;
    TensorView y, group_list, session_ids, micro_batch_ids, token_ids, expert_offsets,
        dynamic_scale, actual_token_num;

    ops::FfnWorkerBatchingOutput output() const {
        return {.y = {static_cast<std::byte*>(y.data), y.num_elements() * size_of(y.dtype)},
                .group_list = elements_of<int64_t>(group_list),
                .session_ids = elements_of<int32_t>(session_ids),
                .micro_batch_ids = elements_of<int32_t>(micro_batch_ids),
                .token_ids = elements_of<int32_t>(token_ids),
                .expert_offsets = elements_of<int32_t>(expert_offsets),
                .dynamic_scale = elements_of<float>(dynamic_scale)};
    }

    void set_shapes(size_t num_rows, size_t hidden, int64_t token_dtype) {
        const auto num_experts = static_cast<size_t>(request.attributes.expert_num);
        y = shape_of(dtype_of(token_dtype), {num_rows, hidden});
        group_list = shape_of(DType::kInt64, {num_experts, 2});
        for (TensorView* list : {&session_ids, &micro_batch_ids, &token_ids, &expert_offsets}) {
            *list = shape_of(DType::kInt32, {num_rows});
        }
        if (y.dtype == DType::kInt8) dynamic_scale = shape_of(DType::kFp32, {num_rows});
        actual_token_num = shape_of(DType::kInt64, {1});
    }

    template <typename Operator>
    Result<> run(Operator operate) const {
        ops::FfnWorkerBatchingOutput made = output();
        AFD_TRY(operate(made));
        elements_of<int64_t>(actual_token_num)[0] = made.actual_token_num;
        return {};
    }
};

void return_all(OperatorCall& call, BatchingCall& batching) {
    call.returns("y", batching.y);
    call.returns("group_list", batching.group_list);
    call.returns("session_ids", batching.session_ids);
    call.returns("micro_batch_ids", batching.micro_batch_ids);
    call.returns("token_ids", batching.token_ids);
    call.returns("expert_offsets", batching.expert_offsets);
    call.returns("dynamic_scale", batching.dynamic_scale);
    call.returns("actual_token_num", batching.actual_token_num);
}

}  // namespace

Result<> prepare_ffn_worker_batching(OperatorCall& call) {
    const std::vector<int64_t> out_shape = call.integers("max_out_shape");
    const int64_t token_dtype = call.integer("token_dtype");
    auto& batching = call.keep<BatchingCall>();
    auto& request = batching.request;
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
    batching.set_shapes(num_rows, static_cast<size_t>(out_shape[3]), token_dtype);
    AFD_TRY(ops::check_ffn_worker_batching(request, batching.output()));
    return_all(call, batching);
    call.workspace_grows_with({"expert_num", "max_out_shape"});
    call.ready(
        ops::ffn_worker_batching_workspace_bytes(request.attributes),
        [&batching, &parallel = call.parallel()](auto workspace) {
            return batching.run([&](ops::FfnWorkerBatchingOutput& output) {
                return ops::ffn_worker_batching(batching.request, output, workspace, parallel);
            });
        },
        [&batching] {
            return batching.run([&](ops::FfnWorkerBatchingOutput& output) {
                return ops::reference::ffn_worker_batching(batching.request, output);
            });
        });
    return {};
}

Result<> prepare_attention_worker_combine(OperatorCall& call) {
    auto& r = call.keep<ops::AttentionWorkerCombineRequest>();
    AFD_TRY(call.fill(ops::kAttentionWorkerCombineSpec, r));
    const auto hidden = static_cast<size_t>(std::clamp<int64_t>(r.hidden_size, 0, INT32_MAX));
    r.y = shape_of(dtype_of(r.token_dtype), {extent(r.expert_scales, 0), hidden});
    r.next_layer_id = shape_of(DType::kInt32, {1});
    r.actual_token_num = shape_of(DType::kInt64, {1});
    AFD_TRY(ops::check_attention_worker_combine(r));
    call.returns(ops::kAttentionWorkerCombineSpec, r);
    call.ready(
        ops::attention_worker_combine_workspace_bytes(),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::attention_worker_combine(r, workspace, parallel);
        },
        [&r] { return ops::reference::attention_worker_combine(r); });
    return {};
}

Result<> prepare_ffn_worker_scheduler(OperatorCall& call) {
    auto& r = call.keep<ops::FfnWorkerSchedulerRequest>();
    AFD_TRY(call.fill(ops::kFfnWorkerSchedulerSpec, r));
    AFD_TRY(ops::check_ffn_worker_scheduler(r));
    call.ready(
        0, [&r](auto) { return ops::ffn_worker_scheduler(r); }, nullptr);
    return {};
}

Result<> prepare_attention_worker_scheduler(OperatorCall& call) {
    auto& r = call.keep<ops::AttentionWorkerSchedulerRequest>();
    AFD_TRY(call.fill(ops::kAttentionWorkerSchedulerSpec, r));
    r.taken = shape_of(DType::kInt32, {1});
    AFD_TRY(ops::check_attention_worker_scheduler(r));
    call.returns(ops::kAttentionWorkerSchedulerSpec, r);
    call.ready(
        0, [&r](auto) { return ops::attention_worker_scheduler(r); }, nullptr);
    return {};
}

}  // namespace afd::calls
