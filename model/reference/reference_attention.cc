// SPDX-License-Identifier: Apache-2.0
#include "model/reference/reference_attention.h"

#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "model/gqa/gqa_config.h"
#include "model/gqa/gqa_tensors.h"
#include "model/mla/mla_config.h"
#include "model/mla/mla_tensors.h"
#include "model/mla/mla_weights.h"
#include "ops/reference/gqa.h"
#include "ops/reference/kv_tiles.h"
#include "ops/reference/layer_norm.h"
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
        out->config_ = config;
        AFD_ASSIGN(out->shape_, mla_shape_of(config));
        AFD_ASSIGN(out->rope_, make_mla_rope(config, out->shape_));
        out->softmax_scale_ = mla_softmax_scale(config, out->shape_);
        out->kv_dtype_ = config.quantisation.kv;
        for (uint32_t index = 0; index < config.num_layers; ++index) {
            AFD_ASSIGN(
                auto layer,
                read_mla_tensors(tensors, out->shape_, config.quantisation.attention, index));
            out->layers_.push_back(std::move(layer));
            AFD_TRY(out->read_scales(tensors, index));
        }
        return std::unique_ptr<ReferenceAttention>(std::move(out));
    }

    Matrix attention(uint32_t layer, const Matrix& residual, Rounding rounding) const override {
        const MlaTensors& tensors = layers_[layer];
        const std::vector<int32_t> positions = all_positions(residual.num_rows);
        ops::reference::MlaMatrices weights = weights_of(tensors);
        weights.quant_scale_ckv = latent_scales_[layer];
        weights.quant_scale_ckr = key_scales_[layer];
        const Matrix x = residual_norm(config_, residual, tensors.gamma_input, rounding);
        const auto prolog = ops::reference::mla_prolog(weights, x, positions, rope_, rounding);
        const Matrix heads = ops::reference::mla_attention(
            weights, prolog.query, prolog.query_rope, prolog.ckv, prolog.kr, positions, rounding);
        return ops::reference::linear(heads, linear_weight(tensors.o_proj), rounding);
    }

  private:
    // Empty unless the cache has factors.
    Result<> read_scales(const TensorStore& tensors, uint32_t layer) {
        latent_scales_.emplace_back();
        key_scales_.emplace_back();
        if (kv_dtype_ != ops::KvDtype::kInt8Channel) return {};
        const std::array<uint64_t, 1> latent = {shape_.kv_lora_rank};
        const std::array<uint64_t, 1> key = {shape_.qk_rope_head_dim};
        AFD_ASSIGN(latent_scales_.back(), tensors.read_f32(latent_scale_name(layer), latent));
        AFD_ASSIGN(key_scales_.back(), tensors.read_f32(key_scale_name(layer), key));
        return {};
    }

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
        weights.kv_dtype = kv_dtype_;
        return weights;
    }

    ModelConfig config_;
    ops::MlaShape shape_;
    ops::RopeTable rope_;
    double softmax_scale_ = 1;
    ops::KvDtype kv_dtype_ = ops::KvDtype::kBf16;
    std::vector<MlaTensors> layers_;
    std::vector<std::vector<float>> latent_scales_;  // [num_layers]
    std::vector<std::vector<float>> key_scales_;
};

class ReferenceGqa final : public ReferenceAttention {
  public:
    static Result<std::unique_ptr<ReferenceAttention>> load(const ModelConfig& config,
                                                            const GqaTraits& traits,
                                                            const TensorStore& tensors) {
        auto out = std::make_unique<ReferenceGqa>();
        out->config_ = config;
        out->traits_ = traits;
        out->kv_dtype_ = config.quantisation.kv;
        AFD_ASSIGN(out->rope_, make_gqa_rope(config, traits));
        for (uint32_t index = 0; index < config.num_layers; ++index) {
            AFD_ASSIGN(auto layer, read_gqa_tensors(tensors, config, traits, index));
            out->layers_.push_back(std::move(layer));
        }
        return std::unique_ptr<ReferenceAttention>(std::move(out));
    }

    Matrix attention(uint32_t layer, const Matrix& residual, Rounding rounding) const override {
        const GqaTensors& tensors = layers_[layer];
        const std::vector<int32_t> positions = all_positions(residual.num_rows);
        const ops::reference::GqaMatrices weights{.shape = traits_.shape,
                                                  .q_proj = linear_weight(tensors.q_proj),
                                                  .k_proj = linear_weight(tensors.k_proj),
                                                  .v_proj = linear_weight(tensors.v_proj),
                                                  .q_bias = tensors.q_bias,
                                                  .k_bias = tensors.k_bias,
                                                  .v_bias = tensors.v_bias,
                                                  .q_gamma = tensors.q_gamma,
                                                  .k_gamma = tensors.k_gamma,
                                                  .norm_epsilon = config_.rms_norm_eps,
                                                  .clip = traits_.clip,
                                                  .softmax_scale = gqa_softmax_scale(traits_.shape),
                                                  .window = traits_.window(layer),
                                                  .sinks = tensors.sinks};
        const Matrix x = residual_norm(config_, residual, tensors.input_norm, rounding);
        auto prolog = ops::reference::gqa_prolog(weights, x, positions, rope_, rounding);
        if (rounding == Rounding::kBf16 && kv_dtype_ != ops::KvDtype::kBf16) {
            through_cache(prolog.key);
            through_cache(prolog.value);
        }
        const Matrix heads = ops::reference::gqa_attention(
            weights, prolog.query, prolog.key, prolog.value, positions, rounding);
        return ops::reference::linear(
            heads, linear_weight(tensors.o_proj), rounding, tensors.o_bias);
    }

  private:
    // What attention reads of rows of heads that the cache keeps in kv_dtype_.
    void through_cache(Matrix& rows) const {
        const size_t dim = traits_.shape.head_dim;
        for (size_t first = 0; first < rows.num_cols; first += dim) {
            ops::reference::through_tiles(kv_dtype_, first, dim, rows);
        }
    }

    ModelConfig config_;
    GqaTraits traits_;
    ops::KvDtype kv_dtype_ = ops::KvDtype::kBf16;
    ops::RopeTable rope_;
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

Matrix residual_norm(const ModelConfig& config,
                     const Matrix& residual,
                     const NormView& norm,
                     Rounding rounding) {
    if (norm.is_layer_norm()) {
        return ops::reference::layer_norm(
            residual, norm.gamma, norm.beta, config.rms_norm_eps, rounding);
    }
    return config.residual == ResidualType::kFp32
               ? ops::reference::rms_norm_scaled(
                     residual, norm.gamma, config.rms_norm_eps, 1.0, rounding)
               : ops::reference::rms_norm(residual, norm.gamma, config.rms_norm_eps, rounding);
}

ops::reference::LinearWeight linear_weight(const StoredMatrix& matrix) {
    if (matrix.empty()) return {};
    if (matrix.format == ops::WeightFormat::kInt8) return matrix.int8_weight();
    if (matrix.format == ops::WeightFormat::kFp8Block128) return matrix.fp8_weight();
    if (ops::is_int4(matrix.format)) return matrix.int4_weight();
    return matrix.bf16_rows();
}

}  // namespace afd::model
