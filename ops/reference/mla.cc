// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/mla.h"

#include "ops/reference/kv_tiles.h"
#include "ops/reference/linear.h"
#include "ops/reference/online_softmax.h"
#include "ops/reference/rms_norm.h"
#include "proto/check.h"

namespace afd::ops::reference {
namespace {

double weight_at(Rows<const Bf16> weight, size_t row, size_t col) {
    return static_cast<double>(to_float(weight.row(row)[col]));
}

// Rotates x[first ... first + dim) of row t into out[out_first ...).
void rotate(const Matrix& x,
            size_t t,
            size_t first,
            const RopeTable& rope,
            int32_t position,
            Rounding rounding,
            Matrix& out,
            size_t out_first) {
    const size_t half = rope.dim() / 2;
    const float* cos = rope.cos(static_cast<size_t>(position));
    const float* sin = rope.sin(static_cast<size_t>(position));
    for (size_t i = 0; i < half; ++i) {
        const double even = x.at(t, first + 2 * i);
        const double odd = x.at(t, first + 2 * i + 1);
        const double c = static_cast<double>(cos[i]);
        const double s = static_cast<double>(sin[i]);
        out.at(t, out_first + i) = round_point(even * c - odd * s, rounding);
        out.at(t, out_first + half + i) = round_point(odd * c + even * s, rounding);
    }
}

void absorb(const MlaMatrices& weights,
            const Matrix& qq,
            size_t t,
            size_t head,
            Rounding rounding,
            Matrix& query) {
    const MlaShape& s = weights.shape;
    const size_t first = head * (s.qk_nope_head_dim + s.qk_rope_head_dim);
    const size_t first_row = head * (s.qk_nope_head_dim + s.v_head_dim);
    for (size_t c = 0; c < s.kv_lora_rank; ++c) {
        double sum = 0;
        for (size_t d = 0; d < s.qk_nope_head_dim; ++d) {
            sum += qq.at(t, first + d) * weight_at(weights.weight_uk_uv, first_row + d, c);
        }
        query.at(t, head * s.kv_lora_rank + c) = round_point(sum, rounding);
    }
}

}  // namespace

MlaPrologOutput mla_prolog(const MlaMatrices& weights,
                           const Matrix& x,
                           std::span<const int32_t> positions,
                           const RopeTable& rope,
                           Rounding rounding) {
    const MlaShape& s = weights.shape;
    AFD_ASSERT(positions.size() == x.num_rows, "%zu positions", positions.size());
    MlaPrologOutput out;
    if (s.q_lora_rank != 0) {
        out.query_norm = rms_norm_scaled(linear(x, weights.weight_dq, rounding),
                                         weights.rmsnorm_gamma_cq,
                                         weights.rmsnorm_epsilon_cq,
                                         weights.qc_qr_scale,
                                         rounding);
    }
    const Matrix qq =
        linear(s.q_lora_rank != 0 ? out.query_norm : x, weights.weight_uq_qr, rounding);
    const Matrix kv = linear(x, weights.weight_dkv_kr, rounding);
    out.query = Matrix(x.num_rows, s.latent_columns());
    out.query_rope = Matrix(x.num_rows, s.rope_columns());
    out.kr = Matrix(x.num_rows, s.qk_rope_head_dim);
    // An int8 cache takes the latent before it is rounded, an fp8 one afterwards.
    const bool is_cached = rounding == Rounding::kBf16 && weights.kv_dtype != KvDtype::kBf16;
    out.ckv = rms_norm_scaled(
        kv.columns(0, s.kv_lora_rank),
        weights.rmsnorm_gamma_ckv,
        weights.rmsnorm_epsilon_ckv,
        weights.kc_scale,
        is_cached && weights.kv_dtype != KvDtype::kFp8 ? Rounding::kNone : rounding);
    const bool has_channels = is_cached && weights.kv_dtype == KvDtype::kInt8Channel;
    if (has_channels) {
        through_channels(weights.quant_scale_ckv, 0, out.ckv);
    } else if (is_cached) {
        through_tiles(weights.kv_dtype, 0, s.kv_lora_rank, out.ckv);
    }
    for (size_t t = 0; t < x.num_rows; ++t) {
        rotate(kv,
               t,
               s.kv_lora_rank,
               rope,
               positions[t],
               has_channels ? Rounding::kNone : rounding,
               out.kr,
               0);
        for (size_t head = 0; head < s.num_heads; ++head) {
            absorb(weights, qq, t, head, rounding, out.query);
            const size_t first =
                head * (s.qk_nope_head_dim + s.qk_rope_head_dim) + s.qk_nope_head_dim;
            rotate(qq,
                   t,
                   first,
                   rope,
                   positions[t],
                   rounding,
                   out.query_rope,
                   head * s.qk_rope_head_dim);
        }
    }
    if (has_channels) through_channels(weights.quant_scale_ckr, 0, out.kr);
    return out;
}

Matrix mla_attention(const MlaMatrices& weights,
                     const Matrix& query,
                     const Matrix& query_rope,
                     const Matrix& ckv,
                     const Matrix& kr,
                     std::span<const int32_t> positions,
                     Rounding rounding) {
    const MlaShape& s = weights.shape;
    Matrix out(query.num_rows, s.value_columns());
    for (size_t t = 0; t < query.num_rows; ++t) {
        for (size_t head = 0; head < s.num_heads; ++head) {
            std::vector<double> scores(static_cast<size_t>(positions[t]) + 1);
            for (size_t i = 0; i < scores.size(); ++i) {
                double sum = 0;
                for (size_t c = 0; c < s.kv_lora_rank; ++c) {
                    sum += query.at(t, head * s.kv_lora_rank + c) * ckv.at(i, c);
                }
                for (size_t c = 0; c < s.qk_rope_head_dim; ++c) {
                    sum += query_rope.at(t, head * s.qk_rope_head_dim + c) * kr.at(i, c);
                }
                scores[i] = sum * weights.softmax_scale;
            }
            std::vector<double> latent = online_softmax(scores, ckv, rounding);
            for (double& value : latent) value = round_point(value, rounding);
            const size_t first_row =
                head * (s.qk_nope_head_dim + s.v_head_dim) + s.qk_nope_head_dim;
            for (size_t v = 0; v < s.v_head_dim; ++v) {
                double sum = 0;
                for (size_t c = 0; c < s.kv_lora_rank; ++c) {
                    sum += latent[c] * weight_at(weights.weight_uk_uv, first_row + v, c);
                }
                out.at(t, head * s.v_head_dim + v) = round_point(sum, rounding);
            }
        }
    }
    return out;
}

}  // namespace afd::ops::reference
