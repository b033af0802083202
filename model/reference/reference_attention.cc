// SPDX-License-Identifier: Apache-2.0
#include "model/reference/reference_attention.h"

#include <numeric>
#include <utility>
#include <vector>

#include "model/gqa/gqa_config.h"
#include "model/gqa/gqa_tensors.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_tensors.h"
#include "model/mla/mla_weights.h"
#include "ops/reference/gqa.h"
#include "ops/reference/mla.h"
#include "ops/reference/rms_norm.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::reference::Matrix;
using ops::reference::Rounding;

std::vector<int32_t> all_positions(size_t count) {
    std::vector<int32_t> positions(count);
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
}

class ReferenceMla final : public ReferenceAttention {
  public:
    static Result<std::unique_ptr<ReferenceAttention>> load(const ModelConfig& config,
                                                            const TensorStore& tensors) {
        auto out = std::make_unique<ReferenceMla>();
        AFD_ASSIGN(out->shape_, mla_shape_of(config));
        AFD_ASSIGN(out->rope_, make_mla_rope(config, out->shape_));
        out->norm_epsilon_ = config.rms_norm_eps;
        out->softmax_scale_ = mla_softmax_scale(config, out->shape_);
        for (uint32_t index = 0; index < config.num_layers; ++index) {
            AFD_ASSIGN(
                auto layer,
                read_mla_tensors(tensors, out->shape_, config.quantisation.attention, index));
            out->layers_.push_back(std::move(layer));
        }
        return std::unique_ptr<ReferenceAttention>(std::move(out));
    }

    Matrix attention(uint32_t layer, const Matrix& residual, Rounding rounding) const override {
        const MlaTensors& tensors = layers_[layer];
        const std::vector<int32_t> positions = all_positions(residual.num_rows);
        const ops::reference::MlaMatrices weights = weights_of(tensors);
        const Matrix x =
            ops::reference::rms_norm(residual, tensors.gamma_input, norm_epsilon_, rounding);
        const auto prolog = ops::reference::mla_prolog(weights, x, positions, rope_, rounding);
        const Matrix heads = ops::reference::mla_attention(
            weights, prolog.query, prolog.query_rope, prolog.ckv, prolog.kr, positions, rounding);
        return ops::reference::linear(heads, linear_weight(tensors.o_proj), rounding);
    }

  private:
    ops::reference::MlaMatrices weights_of(const MlaTensors& tensors) const {
        ops::reference::MlaMatrices weights;
        weights.shape = shape_;
        if (shape_.q_lora_rank > 0) {
            weights.weight_dq = linear_weight(tensors.q_a_proj);
            weights.rmsnorm_gamma_cq = tensors.gamma_q_a;
        }
        weights.weight_uq_qr = linear_weight(tensors.q_proj);
        weights.weight_dkv_kr = linear_weight(tensors.kv_a_proj);
        weights.weight_uk_uv =
            ops::make_rows(tensors.kv_b_proj.data(),
                           shape_.num_heads * (shape_.qk_nope_head_dim + shape_.v_head_dim),
                           shape_.kv_lora_rank);
        weights.rmsnorm_gamma_ckv = tensors.gamma_kv_a;
        weights.rmsnorm_epsilon_cq = static_cast<double>(kLatentNormEpsilon);
        weights.rmsnorm_epsilon_ckv = static_cast<double>(kLatentNormEpsilon);
        weights.softmax_scale = softmax_scale_;
        return weights;
    }

    ops::MlaShape shape_;
    ops::RopeTable rope_;
    double norm_epsilon_ = 0;
    double softmax_scale_ = 1;
    std::vector<MlaTensors> layers_;
};

class ReferenceGqa final : public ReferenceAttention {
  public:
    static Result<std::unique_ptr<ReferenceAttention>> load(const ModelConfig& config,
                                                            const GqaTraits& traits,
                                                            const TensorStore& tensors) {
        auto out = std::make_unique<ReferenceGqa>();
        out->traits_ = traits;
        AFD_ASSIGN(out->rope_, make_gqa_rope(config, traits));
        out->norm_epsilon_ = config.rms_norm_eps;
        for (uint32_t index = 0; index < config.num_layers; ++index) {
            AFD_ASSIGN(auto layer,
                       read_gqa_tensors(tensors, traits, config.quantisation.attention, index));
            out->layers_.push_back(std::move(layer));
        }
        return std::unique_ptr<ReferenceAttention>(std::move(out));
    }

    Matrix attention(uint32_t layer, const Matrix& residual, Rounding rounding) const override {
        const GqaTensors& tensors = layers_[layer];
        const std::vector<int32_t> positions = all_positions(residual.num_rows);
        const ops::reference::GqaMatrices weights{
            .shape = traits_.shape,
            .q_proj = linear_weight(tensors.q_proj),
            .k_proj = linear_weight(tensors.k_proj),
            .v_proj = linear_weight(tensors.v_proj),
            .q_bias = tensors.q_bias,
            .k_bias = tensors.k_bias,
            .v_bias = tensors.v_bias,
            .q_gamma = tensors.q_gamma,
            .k_gamma = tensors.k_gamma,
            .norm_epsilon = norm_epsilon_,
            .clip = traits_.clip,
            .softmax_scale = gqa_softmax_scale(traits_.shape)};
        const Matrix x =
            ops::reference::rms_norm(residual, tensors.gamma_input, norm_epsilon_, rounding);
        const auto prolog = ops::reference::gqa_prolog(weights, x, positions, rope_, rounding);
        const Matrix heads = ops::reference::gqa_attention(
            weights, prolog.query, prolog.key, prolog.value, positions, rounding);
        return ops::reference::linear(heads, linear_weight(tensors.o_proj), rounding);
    }

  private:
    GqaTraits traits_;
    ops::RopeTable rope_;
    double norm_epsilon_ = 0;
    std::vector<GqaTensors> layers_;
};

}  // namespace

Result<std::unique_ptr<ReferenceAttention>> load_reference_attention(const ModelConfig& config,
                                                                     const TensorStore& tensors) {
    const AttentionConfig* kind = config.attention.get();
    // By its type and not by a virtual function: what serves does not link afd::reference.
    if (dynamic_cast<const MlaConfig*>(kind) != nullptr) return ReferenceMla::load(config, tensors);
    if (const auto* gqa = dynamic_cast<const GqaConfig*>(kind)) {
        return ReferenceGqa::load(config, gqa->traits(), tensors);
    }
    return unimplemented("the attention of models of type {} has no reference",
                         with(config.model_type));
}

ops::reference::LinearWeight linear_weight(const StoredMatrix& matrix) {
    if (matrix.empty()) return {};
    if (matrix.format == ops::WeightFormat::kInt8) return matrix.int8_weight();
    if (matrix.format == ops::WeightFormat::kFp8Block128) return matrix.fp8_weight();
    return matrix.bf16_rows();
}

}  // namespace afd::model
