// SPDX-License-Identifier: Apache-2.0
#include "model/mla/mla_weights.h"

#include <array>
#include <cmath>
#include <utility>

#include "model/mla/mla_tensors.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

void pack_mla(MlaTensors& tensors,
              const ModelConfig& config,
              ops::NumericClass numeric_class,
              ops::MlaWeights& mla) {
    const ops::MlaShape& shape = mla.shape;
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
    mla.softmax_scale = static_cast<float>(mla_softmax_scale(config, shape));
}

// A factor of 0 or none at all would make a channel unreadable.
Result<std::vector<float>> read_scales(const TensorStore& tensors,
                                       const std::string& name,
                                       uint64_t count) {
    const std::array<uint64_t, 1> shape = {count};
    AFD_ASSIGN(std::vector<float> scales, tensors.read_f32(name, shape));
    for (size_t i = 0; i < scales.size(); ++i) {
        if (scales[i] > 0 && std::isfinite(scales[i])) continue;
        return data_loss("tensor {}: element {} is {}; factors must be positive numbers",
                         with(name, i, scales[i]));
    }
    return scales;
}

}  // namespace

double mla_softmax_scale(const ModelConfig& config, const ops::MlaShape& shape) {
    const double scale =
        1.0 / std::sqrt(static_cast<double>(shape.qk_nope_head_dim + shape.qk_rope_head_dim));
    if (!config.yarn || config.yarn->mscale_all_dim == 0) return scale;
    const double mscale = ops::yarn_mscale(config.yarn->factor, config.yarn->mscale_all_dim);
    // Squared, since queries and keys are scaled each; the rotation has a factor of its own.
    return scale * mscale * mscale;
}

Result<ops::RopeTable> make_mla_rope(const ModelConfig& config, const ops::MlaShape& shape) {
    return ops::RopeTable::make({.dim = shape.qk_rope_head_dim,
                                 .theta = config.rope_theta,
                                 .num_positions = config.context_length,
                                 .yarn = config.yarn});
}

Result<MlaLayerWeights> load_mla_layer(const ModelConfig& config,
                                       const ops::MlaShape& shape,
                                       const TensorStore& tensors,
                                       uint32_t layer,
                                       ops::NumericClass numeric_class) {
    AFD_ASSIGN(MlaTensors stored,
               read_mla_tensors(tensors, shape, config.quantisation.attention, layer));
    MlaLayerWeights weights;
    weights.mla.shape = shape;
    pack_mla(stored, config, numeric_class, weights.mla);
    if (config.quantisation.kv == ops::KvDtype::kInt8Channel) {
        AFD_ASSIGN(weights.mla.quant_scale_ckv,
                   read_scales(tensors, latent_scale_name(layer), shape.kv_lora_rank));
        AFD_ASSIGN(weights.mla.quant_scale_ckr,
                   read_scales(tensors, key_scale_name(layer), shape.qk_rope_head_dim));
    }
    AFD_TRY(ops::validate(weights.mla));
    weights.o_proj = stored.o_proj.packed(numeric_class);
    weights.gamma_input = std::move(stored.gamma_input);
    return weights;
}

}  // namespace afd::model
