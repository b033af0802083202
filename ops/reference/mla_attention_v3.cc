// SPDX-License-Identifier: Apache-2.0

#include "ops/reference/mla_attention_v3.h"

#include <cstring>
#include <limits>
#include <vector>

#include "ops/operators/mla_v3/mla_attention_v3_plan.h"
#include "ops/reference/quantise.h"
#include "ops/tensor/math.h"

namespace afd::ops::reference {
namespace {

using Floats = std::vector<float>;

float sum_by_halves(Floats lanes) {
    for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    return lanes[0];
}

class Attention {
  public:
    Attention(const MlaAttentionV3Request& request,
              const MlaAttentionV3Plan& plan,
              Subnormals subnormals)
        : r_(request),
          plan_(plan),
          s_(plan.shape),
          of_weights_(subnormals),
          // Rows that were quantised are multiplied in fp32 in every class.
          of_cache_(plan.kv_quant == KvQuant::kNone ? subnormals : Subnormals::kKept) {}

    void token(size_t t) const {
        Floats heads;
        for (size_t head = 0; head < s_.num_heads; ++head) {
            const Floats latent = attend(t, head);
            for (size_t v = 0; v < s_.v_head_dim; ++v) {
                float sum = 0;
                for (size_t c = 0; c < latent.size(); ++c) {
                    const size_t row = head * s_.v_head_dim + v;
                    const float weight = float_at(r_.weight_uv, row * latent.size() + c);
                    sum = multiply_add(sum, latent[c], weight, of_weights_);
                }
                heads.push_back(rounded(sum));
            }
        }
        for (size_t n = 0; n < s_.hidden; ++n) {
            float sum = 0;
            for (size_t k = 0; k < heads.size() && plan_.has_weight_o; ++k) {
                const float weight = float_at(r_.weight_o, k * s_.hidden + n);
                sum = multiply_add(sum, heads[k], weight, of_weights_);
            }
            set_element(DType::kBf16,
                        r_.attention_out.data,
                        t * s_.hidden + n,
                        plan_.has_weight_o ? sum : heads[n]);
        }
    }

  private:
    // [Hckv], rounded.
    Floats attend(size_t t, size_t head) const {
        const size_t num_positions =
            static_cast<size_t>(static_cast<const int32_t*>(r_.positions.data)[t]) + 1;
        const CacheRowOfPosition rows(r_, plan_.cache_mode, t);
        float maximum = -std::numeric_limits<float>::infinity();
        float sum = 0;
        Floats o(s_.kv_lora_rank);
        for (size_t first = 0; first < num_positions; first += kAttentionBlock) {
            Floats scores(kAttentionBlock, -std::numeric_limits<float>::infinity());
            std::vector<Floats> keys;
            const float before = maximum;
            for (size_t i = first; i < num_positions && i < first + kAttentionBlock; ++i) {
                keys.push_back(read_row(rows.row(i)));
                scores[i - first] = score(t, head, keys.back());
                if (scores[i - first] > maximum) maximum = scores[i - first];
            }
            const float alpha = exp(before - maximum);
            Floats lanes(16);
            for (float& value : o) value = value * alpha;
            for (size_t i = 0; i < kAttentionBlock; ++i) {
                const float p = exp(scores[i] - maximum);
                // The sum is of the p before its rounding; the values are weighted with the rounded
                // one.
                lanes[i % 16] = lanes[i % 16] + p;
                for (size_t c = 0; c < o.size() && i < keys.size(); ++c) {
                    o[c] = multiply_add(o[c], rounded(p), keys[i][c], of_cache_);
                }
            }
            sum = sum * alpha;
            sum = sum + sum_by_halves(lanes);
        }
        for (float& value : o) value = rounded(value / sum);
        return o;
    }

    float score(size_t t, size_t head, const Floats& key) const {
        const size_t place = t * s_.num_heads + head;
        const size_t latent = s_.kv_lora_rank;
        Floats lanes(16);
        for (size_t i = 0; i < latent; ++i) {
            lanes[i % 16] = multiply_add(
                lanes[i % 16], float_at(r_.query, place * latent + i), key[i], of_cache_);
        }
        for (size_t i = 0; i < s_.qk_rope_head_dim; ++i) {
            const size_t at = place * s_.qk_rope_head_dim + i;
            lanes[i % 16] = multiply_add(
                lanes[i % 16], float_at(r_.query_rope, at), key[latent + i], of_cache_);
        }
        float sum = sum_by_halves(lanes);
        if (plan_.quantised_query) sum = sum * float_at(r_.dequant_scale_q_nope, place);
        return sum * r_.softmax_scale;
    }

    // Byte `byte` of a cache row of `row_bytes` bytes.
    uint8_t byte_at(const ConstTensorView& cache, size_t row_bytes, size_t row, size_t byte) const {
        const auto* data = static_cast<const uint8_t*>(cache.data);
        if (!is_nz(plan_.cache_mode)) return data[row * row_bytes + byte];
        const size_t height = cache.shape[1];
        return data[row / height * height * row_bytes + byte / 32 * height * 32 +
                    row % height * 32 + byte % 32];
    }

    float int8_at(const ConstTensorView& cache, size_t row_bytes, size_t row, size_t at) const {
        return static_cast<int8_t>(byte_at(cache, row_bytes, row, at));
    }

    float bf16_at(const ConstTensorView& cache, size_t row_bytes, size_t row, size_t at) const {
        const unsigned low = byte_at(cache, row_bytes, row, at);
        const unsigned high = byte_at(cache, row_bytes, row, at + 1);
        return to_float(Bf16{static_cast<uint16_t>(low | high << 8)});
    }

    // ckv | kr in fp32.
    Floats read_row(size_t row) const {
        const size_t latent = s_.kv_lora_rank;
        const size_t dim = s_.qk_rope_head_dim;
        Floats key(latent + dim);
        switch (plan_.kv_quant) {
            case KvQuant::kNone:
                for (size_t i = 0; i < latent; ++i) {
                    key[i] = bf16_at(r_.kv_cache, 2 * latent, row, 2 * i);
                }
                for (size_t i = 0; i < dim; ++i) {
                    key[latent + i] = bf16_at(r_.kr_cache, 2 * dim, row, 2 * i);
                }
                break;
            case KvQuant::kPerTensor:
                for (size_t i = 0; i < latent; ++i) {
                    key[i] = int8_at(r_.kv_cache, latent, row, i) / float_at(r_.quant_scale_ckv, 0);
                }
                for (size_t i = 0; i < dim; ++i) {
                    key[latent + i] =
                        bf16_at(r_.kr_cache, 2 * dim, row, 2 * i) / float_at(r_.quant_scale_ckv, 0);
                }
                break;
            case KvQuant::kPerChannel:
                for (size_t i = 0; i < latent; ++i) {
                    key[i] = int8_at(r_.kv_cache, latent, row, i) / float_at(r_.quant_scale_ckv, i);
                }
                for (size_t i = 0; i < dim; ++i) {
                    key[latent + i] =
                        int8_at(r_.kr_cache, dim, row, i) / float_at(r_.quant_scale_ckr, i);
                }
                break;
            case KvQuant::kPerTile:
                read_tiles(row, key);
                break;
        }
        return key;
    }

    // 512 int8 | 64 bf16 | 4 fp32 with the seed's sizes.
    void read_tiles(size_t row, Floats& key) const {
        const size_t latent = s_.kv_lora_rank;
        const size_t dim = s_.qk_rope_head_dim;
        const auto tile_size = static_cast<size_t>(r_.tile_size);
        const size_t row_bytes = latent + 2 * dim + 4 * (latent / tile_size);
        for (size_t i = 0; i < latent; ++i) {
            uint8_t bytes[4];
            for (size_t b = 0; b < 4; ++b) {
                const size_t at = latent + 2 * dim + 4 * (i / tile_size) + b;
                bytes[b] = byte_at(r_.kv_cache, row_bytes, row, at);
            }
            float scale = 0;
            std::memcpy(&scale, bytes, sizeof scale);
            key[i] = int8_at(r_.kv_cache, row_bytes, row, i) * scale;
        }
        for (size_t i = 0; i < dim; ++i) {
            key[latent + i] = bf16_at(r_.kv_cache, row_bytes, row, latent + 2 * i);
        }
    }

    const MlaAttentionV3Request& r_;
    const MlaAttentionV3Plan& plan_;
    const MlaShape& s_;
    const Subnormals of_weights_;
    const Subnormals of_cache_;
};

}  // namespace

Result<> mla_attention_v3(const MlaAttentionV3Request& request, Subnormals subnormals) {
    MlaAttentionV3Plan plan;
    AFD_ASSIGN(plan, plan_mla_attention_v3(request));
    const Attention attention(request, plan, subnormals);
    for (size_t t = 0; t < plan.num_tokens; ++t) attention.token(t);
    return {};
}

}  // namespace afd::ops::reference
