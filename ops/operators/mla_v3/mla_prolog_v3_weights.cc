// SPDX-License-Identifier: Apache-2.0

// Packs the matrices of mla_prolog_v3, row-major or FRACTAL_NZ.

#include <vector>

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

void pack(const ConstTensorView& view,
          size_t depth,
          size_t outputs,
          NumericClass numeric_class,
          PackedLinear& bf16,
          PackedInt8Linear& int8) {
    if (view.dtype == DType::kInt8) {
        std::vector<int8_t> copy;
        int8 = PackedInt8Linear::pack_transposed(row_major(view, depth, outputs, copy));
        return;
    }
    std::vector<Bf16> copy;
    bf16 = PackedLinear::pack_transposed(row_major(view, depth, outputs, copy), numeric_class);
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
        pack(r.weight_dq, s.hidden, s.q_lora_rank, numeric_class, w.weight_dq, w.int8_dq);
    }
    pack(r.weight_uq_qr,
         plan.query_depth(),
         plan.query_cols(),
         numeric_class,
         w.weight_uq_qr,
         w.int8_uq_qr);
    pack(r.weight_dkv_kr, s.hidden, plan.kv_cols(), numeric_class, w.weight_dkv_kr, w.int8_dkv_kr);
    const auto* uk = static_cast<const Bf16*>(r.weight_uk.data);
    const size_t head_elements = s.qk_nope_head_dim * s.kv_lora_rank;
    for (size_t head = 0; head < s.num_heads; ++head) {
        const auto rows = make_rows(uk + head * head_elements, s.qk_nope_head_dim, s.kv_lora_rank);
        w.weight_uk.push_back(PackedLinear::pack_transposed(rows, numeric_class));
    }
    return w;
}

}  // namespace afd::ops
