// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaBlock: attention with grouped heads over the paged cache: norm, projections, attention, output
// projection and residual add. Rounding points: ops/attention/gqa_prolog.h and
// ops/attention/gqa_attention.h.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/attention/attention_block.h"
#include "model/checkpoint/config.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/checkpoint/tensor_store.h"
#include "model/gqa/gqa_traits.h"
#include "ops/attention/gqa_prolog.h"
#include "ops/attention/rope.h"
#include "ops/format/gqa_cache.h"
#include "ops/format/numeric_class.h"
#include "proto/status.h"

namespace afd::model {

// What is made of one layer's cache: the keys of all slots, then the values of all. Keys in bf16
// are in the order that this class reads fastest.
// REQUIRES: cache.bytes_per_token = 2 · num_kv_heads · gqa_row_bytes().
ops::GqaCache gqa_cache(const KvLayer& cache,
                        const ops::GqaShape& shape,
                        ops::NumericClass numeric_class,
                        ops::KvDtype dtype = ops::KvDtype::kBf16);

class GqaBlock final : public AttentionBlock {
  public:
    // Loads and packs these layers. Errors: those of read_gqa_tensors() and make_gqa_rope().
    static Result<GqaBlock> load(const ModelConfig& config,
                                 const GqaTraits& traits,
                                 const TensorStore& tensors,
                                 ops::NumericClass numeric_class,
                                 LayerRange layers);

    size_t workspace_bytes(size_t rows_max, unsigned num_threads) const override;
    size_t products_per_position() const override { return 2 * shape_.query_columns(); }
    void attention(uint32_t layer,
                   const ops::AttentionBatch& batch,
                   const KvLayer& cache,
                   const Residual& residual,
                   std::span<std::byte> workspace,
                   ops::Parallel& parallel) const override;

  private:
    struct Layer {
        NormTensors input_norm;
        ops::GqaWeights gqa;
        ops::PackedLinear o_proj;       // [hidden, query_columns]
        std::vector<ops::Bf16> o_bias;  // [hidden], or empty.
        std::vector<float> sinks;       // [num_heads], or empty.
        uint32_t window = 0;            // 0: none.
    };

    GqaBlock() = default;
    Result<> load_layer(const ModelConfig& config,
                        const GqaTraits& traits,
                        const TensorStore& tensors,
                        uint32_t index);

    void add_biased_heads(const Layer& layer,
                          ops::Rows<const ops::Bf16> heads,
                          const Residual& residual,
                          ops::Rows<ops::Bf16> projected,
                          std::span<std::byte> workspace,
                          ops::Parallel& parallel) const;

    ops::GqaShape shape_;
    ops::KvDtype kv_dtype_ = ops::KvDtype::kBf16;
    bool has_o_bias_ = false;
    ops::NumericClass numeric_class_{};
    double norm_epsilon_ = 0;
    ops::RopeTable rope_;
    std::vector<Layer> layers_;  // [num_layers], empty where not loaded
};

}  // namespace afd::model
