// SPDX-License-Identifier: Apache-2.0
#include "model/mla/mla_config.h"

#include <array>
#include <string>
#include <utility>

#include "model/mla/mla_block.h"
#include "model/mla/mla_tensors.h"
#include "proto/failure.h"

namespace afd::model {

uint64_t MlaConfig::cache_bytes_per_token(ops::KvDtype dtype) const {
    return ops::latent_row_bytes(dtype, shape_.kv_lora_rank, shape_.qk_rope_head_dim);
}

std::span<const ops::WeightFormat> MlaConfig::formats() const {
    static constexpr std::array kFormats = {ops::WeightFormat::kBf16, ops::WeightFormat::kInt8};
    return kFormats;
}

std::vector<AttentionMatrix> MlaConfig::matrices(const ModelConfig& /*config*/,
                                                 uint32_t layer) const {
    std::vector<AttentionMatrix> matrices;
    for (MlaMatrix& matrix : mla_matrices(shape_, layer)) {
        matrices.push_back(std::move(matrix.stored));
    }
    return matrices;
}

Result<std::unique_ptr<AttentionBlock>> MlaConfig::load(const ModelConfig& config,
                                                        const TensorStore& tensors,
                                                        ops::NumericClass numeric_class,
                                                        LayerRange layers) const {
    AFD_ASSIGN(MlaBlock block, MlaBlock::load(config, shape_, tensors, numeric_class, layers));
    return std::unique_ptr<AttentionBlock>(std::make_unique<MlaBlock>(std::move(block)));
}

std::shared_ptr<const MlaConfig> read_mla_config(KeyReader& keys, uint32_t hidden) {
    const uint32_t num_heads = keys.count("num_attention_heads", 1, kHeadsMax, {});
    // Latent attention has one latent for all heads; a file with grouped heads is another kind of
    // model.
    if (keys.count("num_key_value_heads", 1, kHeadsMax, num_heads) != num_heads) {
        keys.refuse(Code::kUnimplemented,
                    "num_key_value_heads",
                    fmt::format("num_attention_heads, {}", num_heads));
    }
    // In a braced list the keys are read in this order, so the first problem is the file's first.
    const ops::MlaShape shape{
        .hidden = hidden,
        .q_lora_rank = keys.count("q_lora_rank", 0, kDimensionMax, 0),
        .kv_lora_rank = keys.count("kv_lora_rank", 1, kDimensionMax, {}),
        .num_heads = num_heads,
        .qk_nope_head_dim = keys.count("qk_nope_head_dim", 1, kDimensionMax, {}),
        .qk_rope_head_dim = keys.count("qk_rope_head_dim", 2, kDimensionMax, {}),
        .v_head_dim = keys.count("v_head_dim", 1, kDimensionMax, {})};
    if (shape.qk_rope_head_dim % 2 != 0) {
        keys.refuse(Code::kInvalidArgument, "qk_rope_head_dim", "an even number");
    }
    return std::make_shared<const MlaConfig>(shape);
}

Result<ops::MlaShape> mla_shape_of(const ModelConfig& config) {
    const auto* mla = dynamic_cast<const MlaConfig*>(config.attention.get());
    if (mla != nullptr) return mla->shape();
    return unimplemented(
        "models of type {} have another kind of attention than multi-head latent attention",
        with(config.model_type));
}

}  // namespace afd::model
