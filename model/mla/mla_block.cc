// SPDX-License-Identifier: Apache-2.0
#include "model/mla/mla_block.h"

#include <algorithm>
#include <utility>

#include "model/attention/residual_steps.h"
#include "ops/attention/mla_attention.h"
#include "ops/attention/mla_prolog.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ops::Rows;

// Activations of attention(), cut from the workspace; the rest of it is the operators'.
struct Activations {
    Activations(const ops::MlaShape& shape, size_t num_tokens, std::span<std::byte> bytes) {
        ops::WorkspaceCursor cursor(bytes);
        const auto take = [&](size_t columns) {
            return ops::make_rows(cursor.take<Bf16>(num_tokens * columns), num_tokens, columns);
        };
        x = take(shape.hidden);
        query = take(shape.latent_columns());
        query_rope = take(shape.rope_columns());
        heads = take(shape.value_columns());
        operators = cursor.rest();
    }

    static size_t bytes(const ops::MlaShape& shape, size_t num_tokens) {
        return ops::workspace_bytes_of<Bf16>(num_tokens * shape.hidden) +
               ops::workspace_bytes_of<Bf16>(num_tokens * shape.latent_columns()) +
               ops::workspace_bytes_of<Bf16>(num_tokens * shape.rope_columns()) +
               ops::workspace_bytes_of<Bf16>(num_tokens * shape.value_columns());
    }

    Rows<Bf16> x;           // Normalised input, later the block's output.
    Rows<Bf16> query;       // [num_tokens, heads * kv_lora_rank]
    Rows<Bf16> query_rope;  // [num_tokens, heads * rope dim]
    Rows<Bf16> heads;       // [num_tokens, heads * v_head_dim]
    std::span<std::byte> operators;
};

}  // namespace

ops::LatentCache latent_cache(const KvLayer& cache,
                              const ops::MlaShape& shape,
                              ops::KvDtype dtype) {
    AFD_DASSERT(cache.bytes_per_token ==
                    ops::latent_row_bytes(dtype, shape.kv_lora_rank, shape.qk_rope_head_dim),
                "%zu bytes a token",
                static_cast<size_t>(cache.bytes_per_token));
    if (dtype != ops::KvDtype::kBf16) {
        return {.num_slots = cache.num_slots, .dtype = dtype, .rows = cache.data};
    }
    const size_t latent_bytes = shape.kv_lora_rank * sizeof(Bf16);
    return {.ckv = reinterpret_cast<Bf16*>(cache.data),
            // All latents of a layer, then all rotated keys: attention streams through either by
            // itself.
            .kr = reinterpret_cast<Bf16*>(cache.data + cache.num_slots * latent_bytes),
            .num_slots = cache.num_slots};
}

Result<MlaBlock> MlaBlock::load(const ModelConfig& config,
                                const ops::MlaShape& shape,
                                const TensorStore& tensors,
                                ops::NumericClass numeric_class,
                                LayerRange layers) {
    MlaBlock block;
    block.shape_ = shape;
    block.kv_dtype_ = config.quantisation.kv;
    block.norm_epsilon_ = config.rms_norm_eps;
    AFD_ASSIGN(block.rope_, make_mla_rope(config, shape));
    block.layers_.resize(config.num_layers);
    for (uint32_t layer = layers.first; layer < layers.last; ++layer) {
        AFD_ASSIGN(block.layers_[layer],
                   load_mla_layer(config, shape, tensors, layer, numeric_class));
    }
    return block;
}

size_t MlaBlock::workspace_bytes(size_t rows_max, unsigned num_threads) const {
    // The operators follow each other, so they share one scratch.
    return Activations::bytes(shape_, rows_max) +
           std::max({ops::mla_prolog_workspace_bytes(shape_, rows_max),
                     ops::mla_attention_workspace_bytes(shape_, rows_max, num_threads),
                     ops::quantised_input_bytes(rows_max, shape_.value_columns())});
}

size_t MlaBlock::products_per_position() const {
    return shape_.num_heads * (2 * shape_.kv_lora_rank + shape_.qk_rope_head_dim);
}

void MlaBlock::attention(uint32_t layer,
                         const ops::AttentionBatch& batch,
                         const KvLayer& cache,
                         const Residual& residual,
                         std::span<std::byte> workspace,
                         ops::Parallel& parallel) const {
    const MlaLayerWeights& weights = layers_[layer];
    const Activations a(shape_, batch.num_tokens, workspace);
    ops::LatentCache latent = latent_cache(cache, shape_, kv_dtype_);
    latent.quant_scale_ckv = weights.mla.quant_scale_ckv.data();
    latent.quant_scale_ckr = weights.mla.quant_scale_ckr.data();
    normalise(residual, weights.gamma_input, norm_epsilon_, a.x, parallel);
    assert_done(ops::mla_prolog({.weights = &weights.mla,
                                 .rope = &rope_,
                                 .token_x = a.x,
                                 .batch = batch,
                                 .cache = latent,
                                 .query = a.query,
                                 .query_rope = a.query_rope,
                                 .query_norm = {}},
                                a.operators,
                                parallel));
    assert_done(ops::mla_attention({.weights = &weights.mla,
                                    .query = a.query,
                                    .query_rope = a.query_rope,
                                    .batch = batch,
                                    .cache = latent,
                                    .out = a.heads},
                                   a.operators,
                                   parallel));
    add_projected_heads(residual, a.heads, weights.o_proj, a.x, a.operators, parallel);
}

}  // namespace afd::model
