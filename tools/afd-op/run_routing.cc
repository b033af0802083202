// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/operators/grouped_matmul_swiglu.h"
#include "ops/operators/moe_finalize_routing.h"
#include "ops/operators/moe_gating_top_k.h"
#include "ops/operators/moe_init_routing.h"
#include "ops/reference/grouped_matmul_swiglu.h"
#include "ops/reference/moe_finalize_routing.h"
#include "ops/reference/moe_init_routing.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
namespace {

using ops::ConstTensorView;
using ops::DType;

}  // namespace

Result<> run_moe_gating_top_k(OperatorCall& call) {
    ops::MoeGatingTopKRequest r;
    r.k = call.integer("k");
    r.topk_group = call.integer("topk_group");
    r.n_group = call.integer("n_group");
    r.group_select_mode = call.integer("group_select_mode");
    r.norm_topk_prob = call.flag("norm_topk_prob");
    r.norm_type = call.integer("norm_type");
    r.routed_scaling_factor = static_cast<float>(call.number("routed_scaling_factor"));
    r.x = call.input("x");
    r.bias = call.input("bias");
    // More picks than experts are refused below; no memory is made for them.
    const auto k =
        static_cast<size_t>(std::clamp<int64_t>(r.k, 0, static_cast<int64_t>(extent(r.x, 1))));
    r.y = call.output("y", DType::kFp32, {extent(r.x, 0), k});
    r.expert_idx = call.output("expert_idx", DType::kInt32, {extent(r.x, 0), k});
    AFD_TRY(ops::check_moe_gating_top_k(r));
    if (call.is_reference()) return ops::reference::moe_gating_top_k(r);
    return ops::moe_gating_top_k(r, call.workspace(ops::moe_gating_top_k_workspace_bytes(r)));
}

Result<> run_moe_init_routing_v3(OperatorCall& call) {
    ops::MoeInitRoutingV3Request r;
    const std::vector<int64_t> range = call.integers("active_expert_range");
    r.active_num = call.integer("active_num");
    r.expert_capacity = call.integer("expert_capacity");
    r.expert_num = call.integer("expert_num");
    r.drop_pad_mode = call.integer("drop_pad_mode");
    r.expert_tokens_num_type = call.integer("expert_tokens_num_type");
    r.expert_tokens_num_flag = call.flag("expert_tokens_num_flag");
    r.quant_mode = call.integer("quant_mode");
    r.active_expert_range = range;
    r.row_idx_type = call.integer("row_idx_type");
    r.x = call.input("x");
    r.expert_idx = call.input("expert_idx");
    r.scale = call.input("scale");
    r.offset = call.input("offset");
    AFD_ASSIGN(const ops::MoeInitRoutingV3Shapes shapes, ops::moe_init_routing_v3_shapes(r));
    r.expanded_x = call.output_like("expanded_x", shapes.expanded_x);
    r.expanded_row_idx = call.output_like("expanded_row_idx", shapes.expanded_row_idx);
    r.expert_tokens_count_or_cumsum =
        call.output_like("expert_tokens_count_or_cumsum", shapes.expert_tokens_count_or_cumsum);
    r.expanded_scale = call.output_like("expanded_scale", shapes.expanded_scale);
    if (call.is_reference()) return ops::reference::moe_init_routing_v3(r);
    const size_t bytes = ops::moe_init_routing_v3_workspace_bytes(
        r.expert_idx.shape[0], r.expert_idx.shape[1], static_cast<size_t>(r.expert_num));
    return ops::moe_init_routing_v3(r, call.workspace(bytes), call.parallel());
}

Result<> run_moe_finalize_routing(OperatorCall& call) {
    ops::MoeFinalizeRoutingRequest r;
    r.drop_pad_mode = call.integer("drop_pad_mode");
    r.expanded_x = call.input("expanded_x");
    r.expanded_row_idx = call.input("expanded_row_idx");
    r.x1 = call.input("x1");
    r.x2 = call.input("x2");
    r.bias = call.input("bias");
    r.scales = call.input("scales");
    r.expert_idx = call.input("expert_idx");
    // The number of tokens is that of whichever input has one row a token; without any of them
    // every slot is a token of its own.
    size_t num_tokens = extent(r.expanded_row_idx, 0);
    for (const ConstTensorView* view : {&r.x1, &r.x2, &r.scales, &r.expert_idx}) {
        if (view->given()) num_tokens = extent(*view, 0);
    }
    const size_t hidden = r.expanded_x.rank == 0 ? 0 : extent(r.expanded_x, r.expanded_x.rank - 1);
    r.out = call.output("out", r.expanded_x.dtype, {num_tokens, hidden});
    if (call.is_reference()) return ops::reference::moe_finalize_routing(r);
    return ops::moe_finalize_routing(
        r, call.workspace(ops::moe_finalize_routing_workspace_bytes()), call.parallel());
}

Result<> run_grouped_matmul_swiglu(OperatorCall& call) {
    ops::GroupedMatmulSwigluRequest r;
    r.group_list_type = call.integer("group_list_type");
    r.quant_mode = call.integer("quant_mode");
    r.x = call.input("x");
    r.weight = call.input("weight");
    r.group_list = call.input("group_list");
    r.x_scale = call.input("x_scale");
    r.weight_scale = call.input("weight_scale");
    const bool is_quantised = r.quant_mode == 1;
    r.output = call.output("output",
                           is_quantised ? DType::kInt8 : DType::kBf16,
                           {extent(r.x, 0), extent(r.weight, 2) / 2});
    if (is_quantised) r.output_scale = call.output("output_scale", DType::kFp32, {extent(r.x, 0)});
    AFD_TRY(ops::check_grouped_matmul_swiglu(r));
    if (call.is_reference()) return ops::reference::grouped_matmul_swiglu(r);
    const size_t bytes =
        ops::grouped_matmul_swiglu_workspace_bytes(r, call.parallel().num_threads());
    return ops::grouped_matmul_swiglu(r, call.workspace(bytes), call.parallel());
}

}  // namespace afd::tools
