// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/operators/grouped_matmul_swiglu.h"
#include "ops/operators/moe_finalize_routing.h"
#include "ops/operators/moe_gating_top_k.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/reference/grouped_matmul_swiglu.h"
#include "ops/reference/moe_finalize_routing.h"
#include "ops/reference/moe_gating_top_k.h"
#include "ops/reference/moe_init_routing.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
using ops::ConstTensorView;
using ops::DType;

Result<> run_moe_gating_top_k(OperatorCall& call) {
    ops::MoeGatingTopKRequest r;
    AFD_TRY(call.fill(ops::kMoeGatingTopKSpec, r));
    // More picks than experts are refused below; no memory is made for them.
    const auto k =
        static_cast<size_t>(std::clamp<int64_t>(r.k, 0, static_cast<int64_t>(extent(r.x, 1))));
    r.y = shape_of(DType::kFp32, {extent(r.x, 0), k});
    r.expert_idx = shape_of(DType::kInt32, {extent(r.x, 0), k});
    call.make_outputs(ops::kMoeGatingTopKSpec, r);
    AFD_TRY(ops::check_moe_gating_top_k(r));
    if (call.is_reference()) return ops::reference::moe_gating_top_k(r);
    return ops::moe_gating_top_k(r, call.workspace(ops::moe_gating_top_k_workspace_bytes(r)));
}

Result<> run_moe_init_routing_v3(OperatorCall& call) {
    ops::MoeInitRoutingV3Request r;
    AFD_TRY(call.fill(ops::kMoeInitRoutingV3Spec, r));
    AFD_ASSIGN(r, with_output_shapes(r));
    call.make_outputs(ops::kMoeInitRoutingV3Spec, r);
    if (call.is_reference()) return ops::reference::moe_init_routing_v3(r);
    const size_t bytes = ops::moe_init_routing_v3_workspace_bytes(
        r.expert_idx.shape[0], r.expert_idx.shape[1], static_cast<size_t>(r.expert_num));
    return ops::moe_init_routing_v3(r, call.workspace(bytes), call.parallel());
}

Result<> run_moe_finalize_routing(OperatorCall& call) {
    ops::MoeFinalizeRoutingRequest r;
    AFD_TRY(call.fill(ops::kMoeFinalizeRoutingSpec, r));
    // The number of tokens is that of whichever input has one row a token; without any of them
    // every slot is a token of its own.
    size_t num_tokens = extent(r.expanded_row_idx, 0);
    for (const ConstTensorView* view : {&r.x1, &r.x2, &r.scales, &r.expert_idx}) {
        if (view->given()) num_tokens = extent(*view, 0);
    }
    const size_t hidden = r.expanded_x.rank == 0 ? 0 : extent(r.expanded_x, r.expanded_x.rank - 1);
    r.out = shape_of(r.expanded_x.dtype, {num_tokens, hidden});
    call.make_outputs(ops::kMoeFinalizeRoutingSpec, r);
    if (call.is_reference()) return ops::reference::moe_finalize_routing(r);
    return ops::moe_finalize_routing(
        r, call.workspace(ops::moe_finalize_routing_workspace_bytes()), call.parallel());
}

Result<> run_grouped_matmul_swiglu(OperatorCall& call) {
    ops::GroupedMatmulSwigluRequest r;
    AFD_TRY(call.fill(ops::kGroupedMatmulSwigluSpec, r));
    const bool is_quantised = r.quant_mode == 1;
    r.output = shape_of(is_quantised ? DType::kInt8 : DType::kBf16,
                        {extent(r.x, 0), extent(r.weight, 2) / 2});
    if (is_quantised) r.output_scale = shape_of(DType::kFp32, {extent(r.x, 0)});
    call.make_outputs(ops::kGroupedMatmulSwigluSpec, r);
    AFD_TRY(ops::check_grouped_matmul_swiglu(r));
    if (call.is_reference()) return ops::reference::grouped_matmul_swiglu(r);
    const size_t bytes =
        ops::grouped_matmul_swiglu_workspace_bytes(r, call.parallel().num_threads());
    return ops::grouped_matmul_swiglu(r, call.workspace(bytes), call.parallel());
}

}  // namespace afd::tools
