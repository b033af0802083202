// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/attention_weights.h"

#include <utility>

#include "model/checkpoint/attention_tensors.h"

namespace afd::model {
namespace {

void pack_mla(AttentionTensors& tensors,
              const ModelConfig& config,
              ops::NumericClass numeric_class,
              ops::MlaWeights& mla) {
    const ops::MlaShape& shape = mla.shape = mla_shape(config);
    if (shape.q_lora_rank > 0) {
        mla.weight_dq = tensors.q_a_proj.packed(numeric_class);
        mla.rmsnorm_gamma_cq = std::move(tensors.gamma_q_a);
    }
    mla.weight_uq_qr = tensors.q_proj.packed(numeric_class);
    mla.weight_dkv_kr = tensors.kv_a_proj.packed(numeric_class);
    mla.rmsnorm_gamma_ckv = std::move(tensors.gamma_kv_a);
    ops::pack_kv_b_proj(
        ops::make_rows(std::as_const(tensors.kv_b_proj).data(),
                       shape.num_heads * (shape.qk_nope_head_dim + shape.v_head_dim),
                       shape.kv_lora_rank),
        numeric_class,
        mla);
    mla.rmsnorm_epsilon_cq = kLatentNormEpsilon;
    mla.rmsnorm_epsilon_ckv = kLatentNormEpsilon;
    mla.softmax_scale = static_cast<float>(config.softmax_scale());
}

}  // namespace

ops::MlaShape mla_shape(const ModelConfig& config) {
    return {.hidden = config.hidden,
            .q_lora_rank = config.q_lora_rank,
            .kv_lora_rank = config.kv_lora_rank,
            .num_heads = config.num_heads,
            .qk_nope_head_dim = config.qk_nope_head_dim,
            .qk_rope_head_dim = config.qk_rope_head_dim,
            .v_head_dim = config.v_head_dim};
}

Result<ops::RopeTable> make_rope_table(const ModelConfig& config) {
    return ops::RopeTable::make({.dim = config.qk_rope_head_dim,
                                 .theta = config.rope_theta,
                                 .num_positions = config.context_length,
                                 .yarn = config.yarn});
}

Result<AttentionLayerWeights> load_attention_layer(const ModelFiles& files,
                                                   uint32_t layer,
                                                   ops::NumericClass numeric_class) {
    const ModelConfig& config = files.config();
    AFD_ASSIGN(AttentionTensors tensors, read_attention_tensors(files.tensors(), config, layer));
    AttentionLayerWeights weights;
    pack_mla(tensors, config, numeric_class, weights.mla);
    AFD_TRY(ops::validate(weights.mla));
    weights.o_proj = tensors.o_proj.packed(numeric_class);
    weights.gamma_input = std::move(tensors.gamma_input);
    weights.gamma_post_attention = std::move(tensors.gamma_post_attention);
    return weights;
}

}  // namespace afd::model
