// SPDX-License-Identifier: Apache-2.0
#pragma once

// ToyAttention: plain attention with grouped heads, as an example of a kind of attention that
// model/ does not have: query heads share a few heads of keys and values, which the cache holds as
// they are. Written by the steps of docs/adding/model_family.md; slow and short.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/attention/attention_block.h"
#include "model/attention/attention_config.h"
#include "ops/attention/rope.h"
#include "ops/linear/linear.h"

namespace afd::model {

struct ToyShape {
    size_t hidden = 0;
    size_t num_heads = 0;
    size_t num_kv_heads = 0;  // A divisor of num_heads; head h uses h / (num_heads / num_kv_heads).
    size_t head_dim = 0;      // Even: all of it is rotated.

    size_t query_columns() const { return num_heads * head_dim; }
    size_t kv_columns() const { return num_kv_heads * head_dim; }
};

class ToyAttention final : public AttentionConfig {
  public:
    explicit ToyAttention(const ToyShape& shape) : shape_(shape) {}

    // A key and a value of every head of them, bf16.
    uint64_t cache_bytes_per_token(ops::KvDtype dtype) const override;
    // bf16 alone.
    std::span<const ops::KvDtype> kv_dtypes() const override;
    // bf16 alone, so there are no matrices() to rewrite.
    std::span<const ops::WeightFormat> formats() const override;
    std::vector<AttentionMatrix> matrices(const ModelConfig& config, uint32_t layer) const override;
    Result<std::unique_ptr<AttentionBlock>> load(const ModelConfig& config,
                                                 const TensorStore& tensors,
                                                 ops::NumericClass numeric_class,
                                                 LayerRange layers) const override;

  private:
    ToyShape shape_;
};

class ToyBlock final : public AttentionBlock {
  public:
    static Result<std::unique_ptr<ToyBlock>> load(const ModelConfig& config,
                                                  const ToyShape& shape,
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
        std::vector<ops::Bf16> gamma;  // [hidden]
        ops::PackedLinear q;           // [heads * dim, hidden]
        ops::PackedLinear k;           // [kv heads * dim, hidden]
        ops::PackedLinear v;           // [kv heads * dim, hidden]
        ops::PackedLinear o;           // [hidden, heads * dim]
    };

    // Rotates a row of `heads` heads in place.
    void rotate(ops::Bf16* row, size_t heads, int32_t position, ops::Bf16* scratch) const;
    // One head of one token. scores [context_length] is scratch.
    void attend(const ops::Bf16* query,
                size_t kv_head,
                const int32_t* blocks,
                size_t num_positions,
                const KvLayer& cache,
                float* scores,
                ops::Bf16* out) const;

    ToyShape shape_;
    size_t context_length_ = 0;
    double norm_epsilon_ = 0;
    ops::RopeTable rope_;
    std::vector<Layer> layers_;  // [num_layers], empty where not loaded
};

}  // namespace afd::model
