// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "calls/prepare_operators.h"
#include "ops/operators/grouped_matmul_swiglu.h"
#include "ops/operators/moe_finalize_routing.h"
#include "ops/operators/moe_gating_top_k.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/reference/grouped_matmul_swiglu.h"
#include "ops/reference/moe_finalize_routing.h"
#include "ops/reference/moe_gating_top_k.h"
#include "ops/reference/moe_init_routing.h"

namespace afd::calls {
using ops::ConstTensorView;
using ops::DType;

Result<> prepare_moe_gating_top_k(OperatorCall& call) {
    auto& r = call.keep<ops::MoeGatingTopKRequest>();
    AFD_TRY(call.fill(ops::kMoeGatingTopKSpec, r));
    // More picks than experts are refused below.
    const auto k =
        static_cast<size_t>(std::clamp<int64_t>(r.k, 0, static_cast<int64_t>(extent(r.x, 1))));
    r.y = shape_of(DType::kFp32, {extent(r.x, 0), k});
    r.expert_idx = shape_of(DType::kInt32, {extent(r.x, 0), k});
    AFD_TRY(ops::check_moe_gating_top_k(r));
    call.returns(ops::kMoeGatingTopKSpec, r);
    call.ready(
        ops::moe_gating_top_k_workspace_bytes(r),
        [&r](auto workspace) { return ops::moe_gating_top_k(r, workspace); },
        [&r] { return ops::reference::moe_gating_top_k(r); });
    return {};
}

Result<> prepare_moe_init_routing_v3(OperatorCall& call) {
    auto& r = call.keep<ops::MoeInitRoutingV3Request>();
    AFD_TRY(call.fill(ops::kMoeInitRoutingV3Spec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    AFD_TRY(ops::check_moe_init_routing_v3(r));
    call.returns(ops::kMoeInitRoutingV3Spec, r);
    call.workspace_grows_with({"expert_num", "expert_idx"});
    call.ready(
        ops::moe_init_routing_v3_workspace_bytes(
            r.expert_idx.shape[0], r.expert_idx.shape[1], static_cast<size_t>(r.expert_num)),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::moe_init_routing_v3(r, workspace, parallel);
        },
        [&r] { return ops::reference::moe_init_routing_v3(r); });
    return {};
}

Result<> prepare_moe_finalize_routing(OperatorCall& call) {
    auto& r = call.keep<ops::MoeFinalizeRoutingRequest>();
    AFD_TRY(call.fill(ops::kMoeFinalizeRoutingSpec, r));
    // The number of tokens is that of whichever input has one row a token; without any of them
    // every slot is a token of its own.
    size_t num_tokens = extent(r.expanded_row_idx, 0);
    for (const ConstTensorView* view : {&r.x1, &r.x2, &r.scales, &r.expert_idx}) {
        if (view->given()) num_tokens = extent(*view, 0);
    }
    const size_t hidden = r.expanded_x.rank == 0 ? 0 : extent(r.expanded_x, r.expanded_x.rank - 1);
    r.out = shape_of(r.expanded_x.dtype, {num_tokens, hidden});
    AFD_TRY(ops::check_moe_finalize_routing(r));
    call.returns(ops::kMoeFinalizeRoutingSpec, r);
    call.ready(
        ops::moe_finalize_routing_workspace_bytes(),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::moe_finalize_routing(r, workspace, parallel);
        },
        [&r] { return ops::reference::moe_finalize_routing(r); });
    return {};
}

Result<> prepare_grouped_matmul_swiglu(OperatorCall& call) {
    auto& r = call.keep<ops::GroupedMatmulSwigluRequest>();
    AFD_TRY(call.fill(ops::kGroupedMatmulSwigluSpec, r));
    r.numeric_class = call.options().numeric_class;
    const bool is_quantised = r.quant_mode == 1;
    r.output = shape_of(is_quantised ? DType::kInt8 : DType::kBf16,
                        {extent(r.x, 0), extent(r.weight, 2) / 2});
    if (is_quantised) r.output_scale = shape_of(DType::kFp32, {extent(r.x, 0)});
    AFD_TRY(ops::check_grouped_matmul_swiglu(r));
    call.returns(ops::kGroupedMatmulSwigluSpec, r);
    // As if every row had an expert.
    call.set_operations(2.0 * static_cast<double>(extent(r.x, 0)) *
                        static_cast<double>(extent(r.x, 1)) *
                        static_cast<double>(extent(r.weight, 2)));
    call.ready(
        ops::grouped_matmul_swiglu_workspace_bytes(r, call.parallel().num_threads()),
        [&r, &parallel = call.parallel()](auto workspace) {
            return ops::grouped_matmul_swiglu(r, workspace, parallel);
        },
        [&r, s = call.options().subnormals] {
            return ops::reference::grouped_matmul_swiglu(r, s);
        });
    return {};
}

}  // namespace afd::calls
