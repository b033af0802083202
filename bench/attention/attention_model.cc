// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_model.h"

#include <cmath>
#include <cstdint>

#include "bench/attention/random_tensors.h"
#include "model/mla/mla_block.h"
#include "model/mla/mla_config.h"
#include "ops/tensor/tensor_view.h"

namespace afd::bench {

using ops::MlaShape;

ops::MlaWeights random_weights(const MlaShape& s, ops::NumericClass numeric_class) {
    ops::MlaWeights w;
    w.shape = s;
    w.softmax_scale = 1.0f / std::sqrt(static_cast<float>(s.qk_nope_head_dim + s.qk_rope_head_dim));
    if (s.q_lora_rank > 0) w.weight_dq = random_linear(s.q_lora_rank, s.hidden, numeric_class);
    w.weight_uq_qr = random_linear(s.num_heads * (s.qk_nope_head_dim + s.qk_rope_head_dim),
                                   s.q_lora_rank > 0 ? s.q_lora_rank : s.hidden,
                                   numeric_class);
    w.weight_dkv_kr = random_linear(s.kv_lora_rank + s.qk_rope_head_dim, s.hidden, numeric_class);
    const size_t kv_b_rows = s.num_heads * (s.qk_nope_head_dim + s.v_head_dim);
    const auto kv_b = random_values(kv_b_rows * s.kv_lora_rank,
                                    1.0f / std::sqrt(static_cast<float>(s.kv_lora_rank)));
    ops::pack_kv_b_proj(ops::make_rows(kv_b.data(), kv_b_rows, s.kv_lora_rank), numeric_class, w);
    w.rmsnorm_gamma_cq.assign(s.q_lora_rank, ops::from_float(1.0f));
    w.rmsnorm_gamma_ckv.assign(s.kv_lora_rank, ops::from_float(1.0f));
    return w;
}

model::KvCache make_cache(const MlaShape& s, size_t num_slots, ops::KvDtype dtype) {
    return model::KvCache::create(
               {.num_layers = 1,
                .layer_bytes_per_token = model::MlaConfig(s).cache_bytes_per_token(dtype)},
               num_slots)
        .value();
}

ops::LatentCache latent_cache(const model::KvCache& cache, const MlaShape& s, ops::KvDtype dtype) {
    return model::latent_cache(cache.layer(0), s, dtype);
}

double score_operations(const MlaShape& s, double num_scores) {
    return 2 * num_scores *
           static_cast<double>(s.num_heads * (2 * s.kv_lora_rank + s.qk_rope_head_dim));
}

double expansion_products(const MlaShape& s) {
    return static_cast<double>(s.num_heads * s.kv_lora_rank * s.v_head_dim);
}

}  // namespace afd::bench
