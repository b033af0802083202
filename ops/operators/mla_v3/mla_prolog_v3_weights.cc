// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/mla_prolog_v3_weights.h"

#include "ops/operators/mla_v3/fractal_nz.h"
#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// The elements of a matrix [rows, cols], row-major; `copy` holds them if the view is FRACTAL_NZ.
template <typename T>
Rows<const T> row_major(const ConstTensorView& view,
                        size_t rows,
                        size_t cols,
                        std::vector<T>& copy) {
    if (view.rank == 2) return make_rows(static_cast<const T*>(view.data), rows, cols);
    copy.resize(rows * cols);
    const Result<> converted =
        from_fractal_nz(view, make_tensor<void>(copy.data(), view.dtype, {rows, cols}));
    AFD_ASSERT(converted.ok(), "%s", converted.error().message.c_str());
    return make_rows(static_cast<const T*>(copy.data()), rows, cols);
}

PackedLinear pack_int8(Rows<const int8_t> matrix, const float* scale, NumericClass numeric_class) {
    std::vector<int8_t> rows(matrix.num_rows * matrix.num_cols);
    for (size_t k = 0; k < matrix.num_rows; ++k) {
        for (size_t n = 0; n < matrix.num_cols; ++n) {
            // Transposed in memory of its own: this operator's matrices are [inputs, outputs],
            // packed ones take outputs by rows.
            rows[n * matrix.num_rows + k] = matrix.row(k)[n];
        }
    }
    const auto transposed = make_rows<const int8_t>(rows.data(), matrix.num_cols, matrix.num_rows);
    return PackedLinear::pack(Int8Weight{transposed, scale}, numeric_class);
}

// `scale` [outputs] is looked at with an int8 matrix only.
PackedLinear pack(const ConstTensorView& view,
                  const ConstTensorView& scale,
                  size_t depth,
                  size_t outputs,
                  NumericClass numeric_class) {
    if (view.dtype == DType::kInt8) {
        std::vector<int8_t> copy;
        return pack_int8(row_major(view, depth, outputs, copy),
                         static_cast<const float*>(scale.data),
                         numeric_class);
    }
    std::vector<Bf16> copy;
    return PackedLinear::pack_transposed(row_major(view, depth, outputs, copy), numeric_class);
}

}  // namespace

Result<MlaPrologV3Weights> pack_mla_prolog_v3(const MlaPrologV3Request& r,
                                              NumericClass numeric_class) {
    MlaPrologV3Plan plan;
    AFD_ASSIGN(plan, plan_mla_prolog_v3(r));
    const MlaShape& s = plan.shape;
    MlaPrologV3Weights w;
    w.shape = s;
    w.weight_quant_mode = r.weight_quant_mode;
    if (plan.has_low_rank()) {
        w.weight_dq =
            pack(r.weight_dq, r.dequant_scale_w_dq, s.hidden, s.q_lora_rank, numeric_class);
    }
    w.weight_uq_qr = pack(r.weight_uq_qr,
                          r.dequant_scale_w_uq_qr,
                          plan.query_depth(),
                          s.query_columns(),
                          numeric_class);
    w.weight_dkv_kr =
        pack(r.weight_dkv_kr, r.dequant_scale_w_dkv_kr, s.hidden, s.kv_columns(), numeric_class);
    const auto* uk = static_cast<const Bf16*>(r.weight_uk.data);
    const size_t head_elements = s.qk_nope_head_dim * s.kv_lora_rank;
    for (size_t head = 0; head < s.num_heads; ++head) {
        const auto rows = make_rows(uk + head * head_elements, s.qk_nope_head_dim, s.kv_lora_rank);
        w.weight_uk.push_back(PackedLinear::pack_transposed(rows, numeric_class));
    }
    return w;
}

}  // namespace afd::ops
