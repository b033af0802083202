// SPDX-License-Identifier: Apache-2.0

// The output shapes of mla_prolog_v3 and mla_attention_v3.

#include <vector>

#include "ops/operators/mla_v3/mla_attention_v3_plan.h"
#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"

namespace afd::ops {
namespace {

// The token axes of `rows`, whose own axes are the last `own_axes`, then `rest`.
TensorView view_of(DType dtype,
                   const ConstTensorView& rows,
                   size_t own_axes,
                   std::initializer_list<size_t> rest) {
    TensorView view{.data = nullptr, .dtype = dtype};
    const size_t num_axes = rows.rank > own_axes ? rows.rank - own_axes : 0;
    for (size_t axis = 0; axis < num_axes && axis < 2; ++axis) {
        view.shape[view.rank++] = rows.shape[axis];
    }
    for (const size_t size : rest) view.shape[view.rank++] = size;
    size_t stride = 1;
    for (size_t axis = view.rank; axis-- > 0;) {
        view.strides[axis] = stride;
        stride *= view.shape[axis];
    }
    return view;
}

size_t size_from_end(const ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[view.rank - 1 - axis] : 0;
}

size_t num_tokens_of(const ConstTensorView& rows, size_t own_axes) {
    return rows.rank == own_axes + 1 ? rows.shape[0] : rows.shape[0] * rows.shape[1];
}

}  // namespace

// The shapes that valid inputs lead to; the checks of the whole request then judge the inputs.
Result<MlaPrologV3Shapes> mla_prolog_v3_shapes(const MlaPrologV3Request& r) {
    const ConstTensorView& x = r.token_x;
    const size_t t = num_tokens_of(x, 1);
    const size_t n = size_from_end(r.weight_uk, 2);
    const bool quantised_query = r.query_quant_mode == 1;
    const bool quantised_norm = r.weight_quant_mode >= 1;
    MlaPrologV3Shapes shapes;
    shapes.query = view_of(
        quantised_query ? DType::kInt8 : DType::kBf16, x, 1, {n, size_from_end(r.weight_uk, 0)});
    shapes.query_rope = view_of(DType::kBf16, x, 1, {n, size_from_end(r.rope_sin, 0)});
    if (quantised_query) {
        shapes.dequant_scale_q_nope = make_tensor<void>(nullptr, DType::kFp32, {t, n, 1});
    }
    if (r.query_norm_flag) {
        shapes.query_norm = view_of(quantised_norm ? DType::kInt8 : DType::kBf16,
                                    x,
                                    1,
                                    {size_from_end(r.rmsnorm_gamma_cq, 0)});
        if (quantised_norm) {
            shapes.dequant_scale_q_norm = make_tensor<void>(nullptr, DType::kFp32, {t, 1});
        }
    }
    MlaPrologV3Request whole = r;
    whole.query = shapes.query;
    whole.query_rope = shapes.query_rope;
    whole.dequant_scale_q_nope = shapes.dequant_scale_q_nope;
    whole.query_norm = shapes.query_norm;
    whole.dequant_scale_q_norm = shapes.dequant_scale_q_norm;
    AFD_TRY(plan_mla_prolog_v3(whole));
    return shapes;
}

Result<TensorView> mla_attention_v3_shapes(const MlaAttentionV3Request& r) {
    const bool has_weight_o = r.weight_o.num_elements() != 0;
    const size_t values = size_from_end(r.weight_uv, 2) * size_from_end(r.weight_uv, 1);
    MlaAttentionV3Request whole = r;
    whole.attention_out =
        view_of(DType::kBf16, r.query, 2, {has_weight_o ? size_from_end(r.weight_o, 0) : values});
    AFD_TRY(plan_mla_attention_v3(whole));
    return whole.attention_out;
}

}  // namespace afd::ops
