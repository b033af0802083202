// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/rms_norm.h"
#include "ops/attention/rope.h"
#include "ops/linear/panel_loop.h"
#include "ops/linear/quantise.h"
#include "ops/operators/mla_v3/mla_prolog_v3_call.h"

namespace afd::ops {
namespace {

template <typename T>
Rows<T> rows_of(const TensorView& view, size_t num_rows, size_t num_cols) {
    return make_rows(static_cast<T*>(view.data), num_rows, num_cols);
}

// The quantised n and its scales: the outputs where they are asked for, else scratch.
struct QuantisedNorm {
    Rows<int8_t> values;
    float* scales;
};

QuantisedNorm place_of_norm(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    if (!call.request.query_norm_flag) return {scratch.n8, scratch.n_scale};
    return {
        rows_of<int8_t>(call.request.query_norm, call.plan.num_tokens, call.plan.shape.q_lora_rank),
        static_cast<float*>(call.request.dequant_scale_q_norm.data)};
}

// n · smooth_scales_cq, quantised per token.
template <typename T>
Int8Rows quantise_norm(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch, Rows<T> n) {
    constexpr DType kDType = sizeof(T) == sizeof(Bf16) ? DType::kBf16 : DType::kFp32;
    const ConstTensorView& smooth = call.request.smooth_scales_cq;
    const float* factors = smooth.num_elements() != 0 ? data_of<float>(smooth) : nullptr;
    // One factor for all columns is spread out: the row kernel knows factors for each column only,
    // and a product with the one has the same bits.
    if (smooth.rank == 1 && factors != nullptr) {
        for (size_t i = 0; i < n.num_cols; ++i) scratch.smooth[i] = *factors;
        factors = scratch.smooth;
    }
    const QuantisedNorm to = place_of_norm(call, scratch);
    for (size_t t = 0; t < n.num_rows; ++t) {
        to.scales[t] = quantise_row(kDType, n.row(t), factors, n.num_cols, to.values.row(t));
    }
    return {to.values, to.scales};
}

// n →bf16 from bf16 rows: scenarios 0xx and 1xx.
Rows<Bf16> norm_bf16(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    const MlaPrologV3Request& r = call.request;
    const MlaPrologV3Plan& plan = call.plan;
    const auto x = make_rows(data_of<Bf16>(r.token_x), plan.num_tokens, plan.shape.hidden);
    const bool is_output = r.query_norm_flag && plan.weight_quant == 0;
    const Rows<Bf16> n = is_output
                             ? rows_of<Bf16>(r.query_norm, plan.num_tokens, plan.shape.q_lora_rank)
                             : scratch.n;
    linear(x, call.weights.weight_dq, scratch.cq, call.parallel);
    rms_norm_scaled(
        scratch.cq, data_of<Bf16>(r.rmsnorm_gamma_cq), r.rmsnorm_epsilon_cq, r.qc_qr_scale, n);
    return n;
}

// qq →bf16.
void project_unquantised(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    const MlaPrologV3Plan& plan = call.plan;
    const Rows<const Bf16> x =
        plan.has_low_rank()
            ? Rows<const Bf16>(norm_bf16(call, scratch))
            : make_rows(data_of<Bf16>(call.request.token_x), plan.num_tokens, plan.shape.hidden);
    linear(x, call.weights.weight_uq_qr, scratch.qq, call.parallel);
}

// qq →bf16, from the quantised bf16 n.
void project_partial(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    linear(quantise_norm(call, scratch, norm_bf16(call, scratch)),
           call.weights.weight_uq_qr,
           scratch.qq,
           call.parallel);
}

// qq in fp32, from the quantised fp32 n; its columns D →bf16.
void project_full(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    const MlaPrologV3Request& r = call.request;
    const MlaPrologV3Plan& plan = call.plan;
    const Int8Rows x{make_rows(data_of<int8_t>(r.token_x), plan.num_tokens, plan.shape.hidden),
                     data_of<float>(r.dequant_scale_x)};
    linear_f32(x, call.weights.weight_dq, scratch.cq32, call.parallel);
    // In place: each row is summed up before it is written.
    rms_norm_scaled(Rows<const float>(scratch.cq32),
                    data_of<Bf16>(r.rmsnorm_gamma_cq),
                    r.rmsnorm_epsilon_cq,
                    r.qc_qr_scale,
                    scratch.cq32);
    linear_f32(quantise_norm(call, scratch, scratch.cq32),
               call.weights.weight_uq_qr,
               scratch.qq32,
               call.parallel);
    for (size_t t = 0; t < plan.num_tokens; ++t) {
        for (size_t head = 0; head < plan.shape.num_heads; ++head) {
            const size_t first = head * plan.head_cols();
            for (size_t i = first; i < first + plan.shape.qk_nope_head_dim; ++i) {
                scratch.qq.row(t)[i] = from_float(scratch.qq32.row(t)[i]);
            }
        }
    }
}

// The rotated part, →bf16, takes the scales of the score's other part, →bf16: one dequantisation
// then serves both.
void scale_rope(const MlaPrologV3Call& call, float query_scale, float* rotated) {
    const bool per_tensor = call.plan.kv_quant == KvQuant::kPerTensor;
    const float kv_scale = per_tensor ? *data_of<float>(call.request.quant_scale_ckv) : 1.0f;
    for (size_t i = 0; i < call.plan.shape.qk_rope_head_dim; ++i) {
        const float rounded = to_float(from_float(rotated[i]));
        rotated[i] = rounded * kv_scale / query_scale;
    }
}

// Quantises one head of one token, as docs/specification.md, section 9, but for zeros, whose scale
// is 1; returns the scale.
float quantise_head(const Bf16* query, size_t latent, int8_t* q) {
    const float scale = quantise_row(DType::kBf16, query, nullptr, latent, q);
    return scale == 0.0f ? 1.0f : scale;
}

// One head of all tokens.
void absorb_head(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch, size_t head) {
    const MlaPrologV3Request& r = call.request;
    const MlaPrologV3Plan& plan = call.plan;
    const MlaShape& s = plan.shape;
    const size_t latent = s.kv_lora_rank;
    const size_t rope_dim = s.qk_rope_head_dim;
    const size_t first = head * plan.head_cols();
    const size_t first_rope = first + s.qk_nope_head_dim;
    float* rotated = scratch.rotated + head * rope_dim;
    const Rows<Bf16> query = plan.quantised_query
                                 ? scratch.query
                                 : rows_of<Bf16>(r.query, plan.num_tokens, s.num_heads * latent);
    SerialParallel serial;
    linear(scratch.qq.columns(first, s.qk_nope_head_dim),
           call.weights.weight_uk[head],
           query.columns(head * latent, latent),
           serial);
    for (size_t t = 0; t < plan.num_tokens; ++t) {
        const Bf16* cos = data_of<Bf16>(r.rope_cos) + t * rope_dim;
        const Bf16* sin = data_of<Bf16>(r.rope_sin) + t * rope_dim;
        if (plan.weight_quant == 2) {
            rope(scratch.qq32.row(t) + first_rope, cos, sin, rope_dim, rotated);
        } else {
            rope(scratch.qq.row(t) + first_rope, cos, sin, rope_dim, rotated);
        }
        const size_t place = t * s.num_heads + head;
        if (plan.quantised_query) {
            const float scale = quantise_head(query.row(t) + head * latent,
                                              latent,
                                              static_cast<int8_t*>(r.query.data) + place * latent);
            static_cast<float*>(r.dequant_scale_q_nope.data)[place] = scale;
            scale_rope(call, scale, rotated);
        }
        Bf16* out = static_cast<Bf16*>(r.query_rope.data) + place * rope_dim;
        for (size_t i = 0; i < rope_dim; ++i) out[i] = from_float(rotated[i]);
    }
}

}  // namespace

void mla_prolog_v3_query(const MlaPrologV3Call& call, const MlaPrologV3Scratch& scratch) {
    const MlaPrologV3Plan& plan = call.plan;
    switch (plan.weight_quant) {
        case 0:
            project_unquantised(call, scratch);
            break;
        case 1:
            project_partial(call, scratch);
            break;
        default:
            project_full(call, scratch);
            break;
    }
    run_where_it_pays(call.parallel,
                      plan.shape.num_heads,
                      plan.num_tokens * plan.shape.query_columns() * plan.shape.kv_lora_rank,
                      [&](size_t head, unsigned) { absorb_head(call, scratch, head); });
}

}  // namespace afd::ops
