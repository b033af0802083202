// SPDX-License-Identifier: Apache-2.0
#include "model/gqa/gqa_block.h"

#include <algorithm>
#include <utility>

#include "model/attention/residual_steps.h"
#include "model/gqa/gqa_tensors.h"
#include "ops/attention/gqa_attention.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ops::Rows;

// Activations of attention(), cut from the workspace; the rest of it is the operators'.
struct GqaActivations {
    GqaActivations(const ops::GqaShape& shape, size_t num_tokens, std::span<std::byte> bytes) {
        ops::WorkspaceCursor cursor(bytes);
        const auto take = [&](size_t columns) {
            return ops::make_rows(cursor.take<Bf16>(num_tokens * columns), num_tokens, columns);
        };
        x = take(shape.hidden);
        query = take(shape.query_columns());
        heads = take(shape.query_columns());
        operators = cursor.rest();
    }

    static size_t bytes(const ops::GqaShape& shape, size_t num_tokens) {
        return ops::workspace_bytes_of<Bf16>(num_tokens * shape.hidden) +
               2 * ops::workspace_bytes_of<Bf16>(num_tokens * shape.query_columns());
    }

    Rows<Bf16> x;      // Normalised input, later the block's output.
    Rows<Bf16> query;  // [num_tokens, query_columns]
    Rows<Bf16> heads;  // [num_tokens, query_columns]
    std::span<std::byte> operators;
};

}  // namespace

ops::GqaCache gqa_cache(const KvLayer& cache,
                        const ops::GqaShape& shape,
                        ops::NumericClass numeric_class,
                        ops::KvDtype dtype) {
    const size_t key_bytes = shape.num_kv_heads * ops::gqa_row_bytes(dtype, shape.head_dim);
    AFD_DASSERT(cache.bytes_per_token == 2 * key_bytes,
                "%zu bytes a token",
                static_cast<size_t>(cache.bytes_per_token));
    std::byte* const values = cache.data + cache.num_slots * key_bytes;
    const ops::KeyOrder key_order = ops::best_key_order(numeric_class, shape, dtype);
    if (dtype != ops::KvDtype::kBf16) {
        return {.num_slots = cache.num_slots,
                .dtype = dtype,
                .key_order = key_order,
                .key_rows = cache.data,
                .value_rows = values};
    }
    return {.keys = reinterpret_cast<Bf16*>(cache.data),
            .values = reinterpret_cast<Bf16*>(values),
            .num_slots = cache.num_slots,
            .key_order = key_order};
}

Result<GqaBlock> GqaBlock::load(const ModelConfig& config,
                                const GqaTraits& traits,
                                const TensorStore& tensors,
                                ops::NumericClass numeric_class,
                                LayerRange layers) {
    GqaBlock block;
    block.shape_ = traits.shape;
    block.kv_dtype_ = config.quantisation.kv;
    block.numeric_class_ = numeric_class;
    block.norm_epsilon_ = config.rms_norm_eps;
    block.has_o_bias_ = traits.has_o_bias;
    AFD_ASSIGN(block.rope_, make_gqa_rope(config, traits));
    block.layers_.resize(config.num_layers);
    for (uint32_t layer = layers.first; layer < layers.last; ++layer) {
        AFD_TRY(block.load_layer(config, traits, tensors, layer));
    }
    return block;
}

Result<> GqaBlock::load_layer(const ModelConfig& config,
                              const GqaTraits& traits,
                              const TensorStore& tensors,
                              uint32_t index) {
    AFD_ASSIGN(GqaTensors stored, read_gqa_tensors(tensors, config, traits, index));
    Layer& layer = layers_[index];
    layer.window = traits.window(index);
    layer.input_norm = std::move(stored.input_norm);
    layer.o_proj = stored.o_proj.packed(numeric_class_);
    layer.o_bias = std::move(stored.o_bias);
    layer.sinks = std::move(stored.sinks);
    ops::GqaWeights& gqa = layer.gqa;
    gqa.shape = shape_;
    gqa.q_proj = stored.q_proj.packed(numeric_class_);
    gqa.k_proj = stored.k_proj.packed(numeric_class_);
    gqa.v_proj = stored.v_proj.packed(numeric_class_);
    gqa.q_bias = std::move(stored.q_bias);
    gqa.k_bias = std::move(stored.k_bias);
    gqa.v_bias = std::move(stored.v_bias);
    gqa.q_gamma = std::move(stored.q_gamma);
    gqa.k_gamma = std::move(stored.k_gamma);
    gqa.norm_epsilon = static_cast<float>(config.rms_norm_eps);
    if (traits.clip) gqa.clip = static_cast<float>(*traits.clip);
    return ops::validate(gqa);
}

size_t GqaBlock::workspace_bytes(size_t rows_max, unsigned num_threads) const {
    const size_t bias_bytes =
        has_o_bias_ ? ops::workspace_bytes_of<float>(rows_max * shape_.hidden) : 0;
    // The operators follow each other, so they share one scratch.
    return GqaActivations::bytes(shape_, rows_max) +
           std::max({ops::gqa_prolog_workspace_bytes(shape_, rows_max),
                     ops::gqa_attention_workspace_bytes(shape_, num_threads),
                     ops::quantised_input_bytes(rows_max, shape_.query_columns()) + bias_bytes});
}

// As add_projected_heads(), with the bias in the sums.
void GqaBlock::add_biased_heads(const Layer& layer,
                                Rows<const Bf16> heads,
                                const Residual& residual,
                                Rows<Bf16> projected,
                                std::span<std::byte> workspace,
                                ops::Parallel& parallel) const {
    ops::WorkspaceCursor cursor(workspace);
    const auto sums = ops::make_rows(
        cursor.take<float>(heads.num_rows * shape_.hidden), heads.num_rows, shape_.hidden);
    const ops::LinearInput input = layer.o_proj.format() == ops::WeightFormat::kInt8
                                       ? ops::quantised_input(heads, cursor.rest(), parallel)
                                       : ops::LinearInput(heads);
    ops::linear_biased(input, layer.o_proj, layer.o_bias, sums, projected, parallel);
    add_residual(residual, projected, parallel);
}

void GqaBlock::attention(uint32_t index,
                         const ops::AttentionBatch& batch,
                         const KvLayer& cache,
                         const Residual& residual,
                         std::span<std::byte> workspace,
                         ops::Parallel& parallel) const {
    const Layer& layer = layers_[index];
    const GqaActivations a(shape_, batch.num_tokens, workspace);
    const ops::GqaCache heads_cache = gqa_cache(cache, shape_, numeric_class_, kv_dtype_);
    normalise(residual, layer.input_norm, norm_epsilon_, a.x, parallel);
    assert_done(ops::gqa_prolog({.weights = &layer.gqa,
                                 .rope = &rope_,
                                 .x = a.x,
                                 .batch = batch,
                                 .cache = heads_cache,
                                 .query = a.query},
                                a.operators,
                                parallel));
    assert_done(ops::gqa_attention({.shape = shape_,
                                    .numeric_class = numeric_class_,
                                    .softmax_scale = static_cast<float>(gqa_softmax_scale(shape_)),
                                    .window = layer.window,
                                    .sinks = layer.sinks,
                                    .query = a.query,
                                    .batch = batch,
                                    .cache = heads_cache,
                                    .out = a.heads},
                                   a.operators,
                                   parallel));
    if (layer.o_bias.empty()) {
        add_projected_heads(residual, a.heads, layer.o_proj, a.x, a.operators, parallel);
    } else {
        add_biased_heads(layer, a.heads, residual, a.x, a.operators, parallel);
    }
}

}  // namespace afd::model
