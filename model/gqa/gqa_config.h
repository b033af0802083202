// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaConfig: attention with grouped heads (multi-head attention among them): Qwen, Mixtral, OLMoE,
// GLM, Phi. Keys and values of every head stay in the cache.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/gqa/gqa_traits.h"

namespace afd::model {

class GqaConfig final : public AttentionConfig {
  public:
    explicit GqaConfig(const GqaTraits& traits) : traits_(traits) {}

    const GqaTraits& traits() const { return traits_; }

    // A key and a value of every head of them.
    uint64_t cache_bytes_per_token(ops::KvDtype dtype) const override;
    // All but int8_channel: heads have no factors.
    std::span<const ops::KvDtype> kv_dtypes() const override;
    uint32_t window() const override;
    uint32_t layer_window(uint32_t layer) const override { return traits_.window(layer); }
    // bf16 and int8; the matrices are q, k, v and o.
    std::span<const ops::WeightFormat> formats() const override;
    std::vector<AttentionMatrix> matrices(const ModelConfig& config, uint32_t layer) const override;
    Result<std::unique_ptr<AttentionBlock>> load(const ModelConfig& config,
                                                 const TensorStore& tensors,
                                                 ops::NumericClass numeric_class,
                                                 LayerRange layers) const override;

  private:
    GqaTraits traits_;
};

}  // namespace afd::model
