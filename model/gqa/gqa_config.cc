// SPDX-License-Identifier: Apache-2.0
#include "model/gqa/gqa_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/gqa/gqa_block.h"
#include "model/gqa/gqa_tensors.h"

namespace afd::model {

uint64_t GqaConfig::cache_bytes_per_token(ops::KvDtype dtype) const {
    return 2 * traits_.shape.num_kv_heads * ops::gqa_row_bytes(dtype, traits_.shape.head_dim);
}

uint32_t GqaConfig::window() const {
    const std::vector<uint32_t>& windows = traits_.windows;
    const bool is_bounded = std::ranges::find(windows, 0u) == windows.end();
    return windows.empty() || !is_bounded ? 0 : std::ranges::max(windows);
}

std::span<const ops::KvDtype> GqaConfig::kv_dtypes() const {
    static constexpr std::array kDtypes = {
        ops::KvDtype::kBf16, ops::KvDtype::kInt8, ops::KvDtype::kFp8};
    return kDtypes;
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
                                                        ops::NumericClass numeric_class,
                                                        LayerRange layers) const {
    AFD_ASSIGN(GqaBlock block, GqaBlock::load(config, traits_, tensors, numeric_class, layers));
    return std::unique_ptr<AttentionBlock>(std::make_unique<GqaBlock>(std::move(block)));
}

}  // namespace afd::model
