// SPDX-License-Identifier: Apache-2.0
#include "model/gqa/gqa_config.h"

#include <array>
#include <utility>

#include "model/gqa/gqa_block.h"
#include "model/gqa/gqa_tensors.h"

namespace afd::model {

uint64_t GqaConfig::cache_bytes_per_token() const {
    return 2 * traits_.shape.kv_columns() * sizeof(ops::Bf16);
}

std::span<const ops::WeightFormat> GqaConfig::formats() const {
    static constexpr std::array kFormats = {ops::WeightFormat::kBf16, ops::WeightFormat::kInt8};
    return kFormats;
}

std::vector<AttentionMatrix> GqaConfig::matrices(const ModelConfig& /*config*/,
                                                 uint32_t layer) const {
    std::vector<AttentionMatrix> matrices;
    for (GqaMatrix& matrix : gqa_matrices(traits_.shape, layer)) {
        matrices.push_back(std::move(matrix.stored));
    }
    return matrices;
}

Result<std::unique_ptr<AttentionBlock>> GqaConfig::load(const ModelConfig& config,
                                                        const TensorStore& tensors,
                                                        ops::NumericClass numeric_class) const {
    AFD_ASSIGN(GqaBlock block, GqaBlock::load(config, traits_, tensors, numeric_class));
    return std::unique_ptr<AttentionBlock>(std::make_unique<GqaBlock>(std::move(block)));
}

}  // namespace afd::model
