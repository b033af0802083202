// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/mla_prolog_v3.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"
#include "ops/reference/quantise.h"

namespace afd::ops::reference {
namespace {

using Floats = std::vector<float>;

void round_all(Floats& values) {
    for (float& value : values) value = rounded(value);
}

// Element (row, col) of a matrix [num_rows, ...] that is row-major or FRACTAL_NZ.
float matrix_at(const ConstTensorView& w, size_t num_rows, size_t row, size_t col) {
    if (w.rank == 2) return float_at(w, row * w.shape[1] + col);
    const size_t c0 = w.shape[3];
    const size_t fractal = col / c0 * ((num_rows + 15) / 16) + row / 16;
    return float_at(w, fractal * 16 * c0 + row % 16 * c0 + col % c0);
}

// x · W of one row. int8: exact sum · row scale · column scale.
Floats project(const Floats& x,
               const ConstTensorView& w,
               size_t cols,
               float row_scale,
               const ConstTensorView& column_scale,
               Subnormals subnormals) {
    Floats y(cols);
    for (size_t n = 0; n < cols; ++n) {
        if (w.dtype == DType::kInt8) {
            int64_t sum = 0;
            for (size_t k = 0; k < x.size(); ++k) {
                sum +=
                    static_cast<int64_t>(x[k]) * static_cast<int64_t>(matrix_at(w, x.size(), k, n));
            }
            y[n] = static_cast<float>(sum) * row_scale;
            y[n] = y[n] * float_at(column_scale, n);
            continue;
        }
        for (size_t k = 0; k < x.size(); ++k) {
            y[n] = multiply_add(y[n], x[k], matrix_at(w, x.size(), k, n), subnormals);
        }
    }
    return y;
}

// x / sqrt(mean(x²) + epsilon) · gamma · scale, the squares summed as ops/attention/rms_norm.h
// says.
Floats rms_norm(const Floats& x, const ConstTensorView& gamma, float epsilon, float scale) {
    float lanes[16] = {};
    for (size_t i = 0; i < x.size(); ++i) lanes[i % 16] = lanes[i % 16] + x[i] * x[i];
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    const float root = std::sqrt(lanes[0] / static_cast<float>(x.size()) + epsilon);
    Floats y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        y[i] = x[i] / root;
        y[i] = y[i] * float_at(gamma, i);
        y[i] = y[i] * scale;
    }
    return y;
}

// De-interleaves x to evens | odds, then x·cos + (−second half | first half)·sin.
Floats rope(const float* x, const MlaPrologV3Request& r, size_t token, size_t dim) {
    Floats halves(dim);
    for (size_t i = 0; i < dim; ++i) halves[i % 2 * (dim / 2) + i / 2] = x[i];
    Floats y(dim);
    for (size_t i = 0; i < dim; ++i) {
        const bool is_first = i < dim / 2;
        const float other = is_first ? -halves[i + dim / 2] : halves[i - dim / 2];
        const float straight = halves[i] * float_at(r.rope_cos, token * dim + i);
        const float turned = other * float_at(r.rope_sin, token * dim + i);
        y[i] = straight + turned;
    }
    return y;
}

int8_t saturate(float value) {
    if (std::isnan(value)) return 0;
    return static_cast<int8_t>(std::clamp(std::nearbyint(value), -128.0f, 127.0f));
}

// The reference of one request; one token at a time, in order.
class Prolog {
  public:
    Prolog(const MlaPrologV3Request& request, const MlaPrologV3Plan& plan, Subnormals subnormals)
        : r_(request),
          plan_(plan),
          s_(plan.shape),
          subnormals_(subnormals),
          row_of_token_(request, plan) {}

    void token(size_t t) {
        Floats x(s_.hidden);
        for (size_t i = 0; i < x.size(); ++i) x[i] = float_at(r_.token_x, t * s_.hidden + i);
        const float x_scale = is_full() ? float_at(r_.dequant_scale_x, t) : 1.0f;
        const Floats qq = up_query(t, x, x_scale);
        for (size_t head = 0; head < s_.num_heads; ++head) {
            finish_head(t, head, qq.data() + head * plan_.head_cols());
        }
        Floats kv = project(x,
                            r_.weight_dkv_kr,
                            plan_.shape.kv_columns(),
                            x_scale,
                            r_.dequant_scale_w_dkv_kr,
                            subnormals_);
        if (!is_full()) round_all(kv);
        const int64_t row = row_of_token_.next();
        if (row < 0) return;
        const Floats latent(kv.begin(), kv.begin() + static_cast<ptrdiff_t>(s_.kv_lora_rank));
        store(static_cast<size_t>(row),
              rms_norm(latent, r_.rmsnorm_gamma_ckv, r_.rmsnorm_epsilon_ckv, r_.kc_scale),
              rope(kv.data() + s_.kv_lora_rank, r_, t, s_.qk_rope_head_dim));
    }

  private:
    bool is_full() const { return plan_.weight_quant == 2; }

    // [N, D + Dr]; in scenarios 2xx not rounded.
    Floats up_query(size_t t, const Floats& x, float x_scale) {
        if (!plan_.has_low_rank()) {
            Floats qq =
                project(x, r_.weight_uq_qr, plan_.shape.query_columns(), 1.0f, {}, subnormals_);
            round_all(qq);
            return qq;
        }
        Floats cq =
            project(x, r_.weight_dq, s_.q_lora_rank, x_scale, r_.dequant_scale_w_dq, subnormals_);
        if (!is_full()) round_all(cq);
        Floats n = rms_norm(cq, r_.rmsnorm_gamma_cq, r_.rmsnorm_epsilon_cq, r_.qc_qr_scale);
        if (!is_full()) round_all(n);
        if (plan_.weight_quant == 0) {
            if (r_.query_norm_flag) {
                for (size_t i = 0; i < n.size(); ++i) {
                    set_element(DType::kBf16, r_.query_norm.data, t * n.size() + i, n[i]);
                }
            }
            Floats qq =
                project(n, r_.weight_uq_qr, plan_.shape.query_columns(), 1.0f, {}, subnormals_);
            round_all(qq);
            return qq;
        }
        const float scale = quantise_norm(t, n);
        Floats qq = project(n,
                            r_.weight_uq_qr,
                            plan_.shape.query_columns(),
                            scale,
                            r_.dequant_scale_w_uq_qr,
                            subnormals_);
        if (!is_full()) round_all(qq);
        return qq;
    }

    // Replaces n by its int8 values and returns their scale.
    float quantise_norm(size_t t, Floats& n) {
        if (r_.smooth_scales_cq.num_elements() != 0) {
            for (size_t i = 0; i < n.size(); ++i) {
                n[i] = n[i] * float_at(r_.smooth_scales_cq, r_.smooth_scales_cq.rank == 1 ? 0 : i);
            }
        }
        std::vector<int8_t> q(n.size());
        const float scale = quantise_row(DType::kFp32, n.data(), nullptr, n.size(), q.data());
        if (r_.query_norm_flag) {
            std::memcpy(
                static_cast<int8_t*>(r_.query_norm.data) + t * q.size(), q.data(), q.size());
            static_cast<float*>(r_.dequant_scale_q_norm.data)[t] = scale;
        }
        std::copy(q.begin(), q.end(), n.begin());
        return scale;
    }

    void finish_head(size_t t, size_t head, const float* qq) {
        const size_t latent = s_.kv_lora_rank;
        const size_t place = t * s_.num_heads + head;
        Floats query(latent);
        for (size_t c = 0; c < latent; ++c) {
            for (size_t d = 0; d < s_.qk_nope_head_dim; ++d) {
                const float weight =
                    float_at(r_.weight_uk, (head * s_.qk_nope_head_dim + d) * latent + c);
                query[c] = multiply_add(query[c], rounded(qq[d]), weight, subnormals_);
            }
        }
        round_all(query);
        Floats key = rope(qq + s_.qk_nope_head_dim, r_, t, s_.qk_rope_head_dim);
        if (plan_.quantised_query) {
            float scale = quantise_row(DType::kFp32,
                                       query.data(),
                                       nullptr,
                                       latent,
                                       static_cast<int8_t*>(r_.query.data) + place * latent);
            if (scale == 0.0f) scale = 1.0f;
            static_cast<float*>(r_.dequant_scale_q_nope.data)[place] = scale;
            for (float& value : key) {
                value = rounded(value);
                if (plan_.kv_quant == KvQuant::kPerTensor) {
                    value = value * float_at(r_.quant_scale_ckv, 0);
                }
                value = value / scale;
            }
        } else {
            for (size_t c = 0; c < latent; ++c) {
                set_element(DType::kBf16, r_.query.data, place * latent + c, query[c]);
            }
        }
        for (size_t i = 0; i < key.size(); ++i) {
            set_element(DType::kBf16, r_.query_rope.data, place * key.size() + i, key[i]);
        }
    }

    // Byte `byte` of row `row` of a cache whose rows have `row_bytes` bytes.
    std::byte* byte_of(const TensorView& cache, size_t row_bytes, size_t row, size_t byte) const {
        auto* data = static_cast<std::byte*>(cache.data);
        if (!is_nz(plan_.cache_mode)) return data + row * row_bytes + byte;
        const size_t height = cache.shape[1];
        const size_t block = row / height;
        return data + block * height * row_bytes + byte / 32 * height * 32 + row % height * 32 +
               byte % 32;
    }

    void put(const TensorView& cache, size_t row_bytes, size_t row, size_t at, int8_t value) {
        *byte_of(cache, row_bytes, row, at) = static_cast<std::byte>(value);
    }

    void put(const TensorView& cache, size_t row_bytes, size_t row, size_t at, Bf16 value) {
        *byte_of(cache, row_bytes, row, at) = static_cast<std::byte>(value.bits & 0xff);
        *byte_of(cache, row_bytes, row, at + 1) = static_cast<std::byte>(value.bits >> 8);
    }

    void store(size_t row, const Floats& ckv, const Floats& kr) {
        const size_t latent = ckv.size();
        const size_t dim = kr.size();
        if (plan_.kv_quant == KvQuant::kPerTile) return store_tiles(row, ckv, kr);
        for (size_t i = 0; i < latent; ++i) {
            if (plan_.kv_quant == KvQuant::kNone) {
                put(r_.kv_cache, 2 * latent, row, 2 * i, from_float(ckv[i]));
                continue;
            }
            const size_t channel = plan_.kv_quant == KvQuant::kPerTensor ? 0 : i;
            const float scale = float_at(r_.quant_scale_ckv, channel);
            put(r_.kv_cache, latent, row, i, saturate(ckv[i] * scale));
        }
        for (size_t i = 0; i < dim; ++i) {
            if (plan_.kv_quant == KvQuant::kPerChannel) {
                const float scale = float_at(r_.quant_scale_ckr, i);
                put(r_.kr_cache, dim, row, i, saturate(kr[i] * scale));
            } else {
                put(r_.kr_cache, 2 * dim, row, 2 * i, from_float(kr[i]));
            }
        }
    }

    // 512 int8 | 64 bf16 | 4 fp32 with the seed's sizes.
    void store_tiles(size_t row, const Floats& ckv, const Floats& kr) {
        const size_t size = static_cast<size_t>(r_.tile_size);
        const size_t num_tiles = ckv.size() / size;
        const size_t row_bytes = ckv.size() + 2 * kr.size() + 4 * num_tiles;
        for (size_t tile = 0; tile < num_tiles; ++tile) {
            bool is_finite = true;
            float largest = 0.0f;
            for (size_t i = tile * size; i < (tile + 1) * size; ++i) {
                is_finite = is_finite && std::isfinite(ckv[i]);
                largest = std::max(largest, std::fabs(ckv[i]));
            }
            const float limit = plan_.k_nope_clip_alpha * largest;
            const float scale = is_finite ? limit / 127.0f : std::nanf("");
            for (size_t i = tile * size; i < (tile + 1) * size; ++i) {
                const float clipped = std::min(std::max(ckv[i], -limit), limit);
                const bool is_zero = !is_finite || scale == 0.0f;
                const float q = is_zero ? 0.0f : std::nearbyint(clipped / scale);
                const float bounded = std::clamp(q, -127.0f, 127.0f);
                put(r_.kv_cache, row_bytes, row, i, static_cast<int8_t>(bounded));
            }
            uint32_t bits = 0;
            std::memcpy(&bits, &scale, sizeof bits);
            const size_t at = ckv.size() + 2 * kr.size() + 4 * tile;
            for (size_t byte = 0; byte < 4; ++byte) {
                *byte_of(r_.kv_cache, row_bytes, row, at + byte) =
                    static_cast<std::byte>(bits >> (8 * byte) & 0xff);
            }
        }
        for (size_t i = 0; i < kr.size(); ++i) {
            put(r_.kv_cache, row_bytes, row, ckv.size() + 2 * i, from_float(kr[i]));
        }
    }

    const MlaPrologV3Request& r_;
    const MlaPrologV3Plan& plan_;
    const MlaShape& s_;
    const Subnormals subnormals_;
    CacheRowOfToken row_of_token_;
};

}  // namespace

Result<> mla_prolog_v3(const MlaPrologV3Request& request, Subnormals subnormals) {
    MlaPrologV3Plan plan;
    AFD_ASSIGN(plan, plan_mla_prolog_v3(request));
    Prolog prolog(request, plan, subnormals);
    for (size_t t = 0; t < plan.num_tokens; ++t) prolog.token(t);
    return {};
}

}  // namespace afd::ops::reference
