// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_prolog_v3.h"

#include "ops/operators/mla_v3/mla_prolog_v3_call.h"
#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"
#include "ops/operators/mla_v3/token_axes.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// Of any kind: a tile row has at most a scale for each of its elements.
size_t row_bytes_max(const MlaShape& s) {
    return 5 * s.kv_lora_rank + 2 * s.qk_rope_head_dim;
}

template <typename T>
Rows<T> take_rows(WorkspaceCursor& cursor, size_t num_rows, size_t num_cols) {
    return make_rows(cursor.take<T>(num_rows * num_cols), num_rows, num_cols);
}

MlaPrologV3Scratch take_scratch(const MlaShape& s, size_t t, std::span<std::byte> workspace) {
    WorkspaceCursor cursor(workspace);
    MlaPrologV3Scratch scratch{};
    scratch.cq = take_rows<Bf16>(cursor, t, s.q_lora_rank);
    scratch.n = take_rows<Bf16>(cursor, t, s.q_lora_rank);
    scratch.qq = take_rows<Bf16>(cursor, t, s.query_columns());
    scratch.query = take_rows<Bf16>(cursor, t, s.latent_columns());
    scratch.kv = take_rows<Bf16>(cursor, t, s.kv_columns());
    scratch.cq32 = take_rows<float>(cursor, t, s.q_lora_rank);
    scratch.qq32 = take_rows<float>(cursor, t, s.query_columns());
    scratch.kv32 = take_rows<float>(cursor, t, s.kv_columns());
    scratch.n8 = take_rows<int8_t>(cursor, t, s.q_lora_rank);
    scratch.n_scale = cursor.take<float>(t);
    scratch.ckv = cursor.take<float>(s.kv_lora_rank);
    scratch.kr = cursor.take<float>(s.qk_rope_head_dim);
    scratch.smooth = cursor.take<float>(s.q_lora_rank);
    scratch.rotated = cursor.take<float>(s.rope_columns());
    scratch.row = cursor.take<std::byte>(row_bytes_max(s));
    return scratch;
}

void assert_weights(const MlaPrologV3Plan& plan, const MlaPrologV3Weights& w) {
    const MlaShape& a = plan.shape;
    const MlaShape& b = w.shape;
    AFD_ASSERT(a.hidden == b.hidden && a.q_lora_rank == b.q_lora_rank &&
                   a.kv_lora_rank == b.kv_lora_rank && a.num_heads == b.num_heads &&
                   a.qk_nope_head_dim == b.qk_nope_head_dim &&
                   a.qk_rope_head_dim == b.qk_rope_head_dim &&
                   plan.weight_quant == w.weight_quant_mode,
               "packed for He %zu, Hcq %zu, Hckv %zu, N %zu, weight_quant_mode %d",
               b.hidden,
               b.q_lora_rank,
               b.kv_lora_rank,
               b.num_heads,
               static_cast<int>(w.weight_quant_mode));
}

}  // namespace

// The shapes that valid inputs lead to; the checks of the whole request then judge the inputs.
Result<MlaPrologV3Request> with_output_shapes(const MlaPrologV3Request& r) {
    const ConstTensorView& x = r.token_x;
    const size_t num_heads = size_from_end(r.weight_uk, 2);
    const bool quantised_query = r.query_quant_mode == 1;
    const bool quantised_norm = r.weight_quant_mode >= 1;
    const auto scales = [&](std::initializer_list<size_t> shape) {
        return make_tensor<void>(nullptr, DType::kFp32, shape);
    };
    MlaPrologV3Request whole = r;
    whole.query = with_token_axes(quantised_query ? DType::kInt8 : DType::kBf16,
                                  x,
                                  1,
                                  {num_heads, size_from_end(r.weight_uk, 0)});
    whole.query_rope =
        with_token_axes(DType::kBf16, x, 1, {num_heads, size_from_end(r.rope_sin, 0)});
    whole.dequant_scale_q_nope = {};
    whole.query_norm = {};
    whole.dequant_scale_q_norm = {};
    if (quantised_query) {
        whole.dequant_scale_q_nope = scales({count_tokens(x, 1), num_heads, 1});
    }
    if (r.query_norm_flag) {
        whole.query_norm = with_token_axes(quantised_norm ? DType::kInt8 : DType::kBf16,
                                           x,
                                           1,
                                           {size_from_end(r.rmsnorm_gamma_cq, 0)});
    }
    if (r.query_norm_flag && quantised_norm) {
        whole.dequant_scale_q_norm = scales({count_tokens(x, 1), 1});
    }
    AFD_TRY(plan_mla_prolog_v3(whole));
    return whole;
}

size_t mla_prolog_v3_workspace_bytes(const MlaShape& s, size_t t) {
    return 2 * workspace_bytes_of<Bf16>(t * s.q_lora_rank) +
           workspace_bytes_of<Bf16>(t * s.query_columns()) +
           workspace_bytes_of<Bf16>(t * s.latent_columns()) +
           workspace_bytes_of<Bf16>(t * s.kv_columns()) +
           workspace_bytes_of<float>(t * s.q_lora_rank) +
           workspace_bytes_of<float>(t * s.query_columns()) +
           workspace_bytes_of<float>(t * s.kv_columns()) +
           workspace_bytes_of<int8_t>(t * s.q_lora_rank) + workspace_bytes_of<float>(t) +
           workspace_bytes_of<float>(s.kv_lora_rank) +
           workspace_bytes_of<float>(s.qk_rope_head_dim) +
           workspace_bytes_of<float>(s.q_lora_rank) + workspace_bytes_of<float>(s.rope_columns()) +
           workspace_bytes_of<std::byte>(row_bytes_max(s));
}

Result<> mla_prolog_v3(const MlaPrologV3Request& request,
                       const MlaPrologV3Weights& weights,
                       std::span<std::byte> workspace,
                       Parallel& parallel) {
    MlaPrologV3Plan plan;
    AFD_ASSIGN(plan, plan_mla_prolog_v3(request));
    assert_weights(plan, weights);
    if (plan.num_tokens == 0) return {};
    const MlaPrologV3Scratch scratch = take_scratch(plan.shape, plan.num_tokens, workspace);
    const MlaPrologV3Call call{request, weights, plan, parallel};
    mla_prolog_v3_query(call, scratch);
    mla_prolog_v3_kv(call, scratch);
    return {};
}

}  // namespace afd::ops
