// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaBlock: multi-head latent attention over the paged cache: norm, MLA prolog, attention in
// absorbed form, output projection and residual add. Rounding points: ops/attention/mla_prolog.h
// and ops/attention/mla_attention.h.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/attention/attention_block.h"
#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "model/mla/mla_weights.h"
#include "ops/attention/rope.h"
#include "ops/format/latent_cache.h"
#include "ops/format/numeric_class.h"
#include "proto/status.h"

namespace afd::model {

// What MLA makes of one layer's cache: the latents of all slots, then the rotated keys of all; of a
// quantised one the rows of ops/format/latent_cache.h.
// REQUIRES: cache.bytes_per_token = latent_row_bytes().
ops::LatentCache latent_cache(const KvLayer& cache,
                              const ops::MlaShape& shape,
                              ops::KvDtype dtype = ops::KvDtype::kBf16);

class MlaBlock final : public AttentionBlock {
  public:
    // Loads and packs these layers. Errors: those of load_mla_layer() and make_mla_rope().
    static Result<MlaBlock> load(const ModelConfig& config,
                                 const ops::MlaShape& shape,
                                 const TensorStore& tensors,
                                 ops::NumericClass numeric_class,
                                 LayerRange layers);

    size_t workspace_bytes(size_t rows_max, unsigned num_threads) const override;
    size_t products_per_position() const override;
    void attention(uint32_t layer,
                   const ops::AttentionBatch& batch,
                   const KvLayer& cache,
                   const Residual& residual,
                   std::span<std::byte> workspace,
                   ops::Parallel& parallel) const override;

  private:
    MlaBlock() = default;

    ops::MlaShape shape_;
    ops::KvDtype kv_dtype_ = ops::KvDtype::kBf16;
    double norm_epsilon_ = 0;
    ops::RopeTable rope_;
    std::vector<MlaLayerWeights> layers_;  // [num_layers], empty where not loaded
};

}  // namespace afd::model
