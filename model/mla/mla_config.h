// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaConfig: multi-head latent attention (DeepSeek-V2, V3 and what derives from them): keys and
// values of all heads compressed into one latent row and one rotated key a token.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/json/key_reader.h"
#include "ops/attention/mla_prolog.h"

namespace afd::model {

class MlaConfig final : public AttentionConfig {
  public:
    explicit MlaConfig(const ops::MlaShape& shape) : shape_(shape) {}

    const ops::MlaShape& shape() const { return shape_; }

    uint64_t cache_bytes_per_token(ops::KvDtype dtype) const override;
    std::span<const ops::KvDtype> kv_dtypes() const override { return ops::kKvDtypes; }
    // bf16 and int8; the matrices are q (or q_a and q_b), kv_a and o.
    std::span<const ops::WeightFormat> formats() const override;
    std::vector<AttentionMatrix> matrices(const ModelConfig& config, uint32_t layer) const override;
    Result<std::unique_ptr<AttentionBlock>> load(const ModelConfig& config,
                                                 const TensorStore& tensors,
                                                 ops::NumericClass numeric_class,
                                                 LayerRange layers) const override;

  private:
    ops::MlaShape shape_;
};

// Reads num_attention_heads, num_key_value_heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim,
// qk_rope_head_dim and v_head_dim. Problems stay in `keys`.
std::shared_ptr<const MlaConfig> read_mla_config(KeyReader& keys, uint32_t hidden);

// The shape of a model whose attention is MLA. Errors: kUnimplemented for another kind.
Result<ops::MlaShape> mla_shape_of(const ModelConfig& config);

}  // namespace afd::model
