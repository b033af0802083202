// SPDX-License-Identifier: Apache-2.0
#include "model/gqa/gqa_block.h"

#include <algorithm>
#include <utility>

#include "model/attention/residual_steps.h"
#include "model/gqa/gqa_tensors.h"
#include "ops/attention/gqa_attention.h"
#include "ops/linear/linear.h"
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

void assert_done(const Result<>& result) {
    AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
}

}  // namespace

ops::GqaCache gqa_cache(const KvLayer& cache, const ops::GqaShape& shape) {
    const size_t key_bytes = shape.kv_columns() * sizeof(Bf16);
    AFD_DASSERT(cache.bytes_per_token == 2 * key_bytes,
                "%zu bytes a token",
                static_cast<size_t>(cache.bytes_per_token));
    return {.keys = reinterpret_cast<Bf16*>(cache.data),
            .values = reinterpret_cast<Bf16*>(cache.data + cache.num_slots * key_bytes),
            .num_slots = cache.num_slots};
}

Result<GqaBlock> GqaBlock::load(const ModelConfig& config,
                                const GqaTraits& traits,
                                const TensorStore& tensors,
                                ops::NumericClass numeric_class) {
    GqaBlock block;
    block.shape_ = traits.shape;
    block.numeric_class_ = numeric_class;
    block.norm_epsilon_ = config.rms_norm_eps;
    AFD_ASSIGN(block.rope_, make_gqa_rope(config, traits));
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        AFD_TRY(block.load_layer(config, traits, tensors, layer));
    }
    return block;
}

Result<> GqaBlock::load_layer(const ModelConfig& config,
                              const GqaTraits& traits,
                              const TensorStore& tensors,
                              uint32_t index) {
    AFD_ASSIGN(GqaTensors stored,
               read_gqa_tensors(tensors, traits, config.quantisation.attention, index));
    Layer layer;
    layer.gamma_input = std::move(stored.gamma_input);
    layer.o_proj = stored.o_proj.packed(numeric_class_);
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
    AFD_TRY(ops::validate(gqa));
    layers_.push_back(std::move(layer));
    return {};
}

size_t GqaBlock::workspace_bytes(size_t rows_max, unsigned num_threads) const {
    // The operators follow each other, so they share one scratch.
    return GqaActivations::bytes(shape_, rows_max) +
           std::max({ops::gqa_prolog_workspace_bytes(shape_, rows_max),
                     ops::gqa_attention_workspace_bytes(shape_, num_threads),
                     ops::quantised_input_bytes(rows_max, shape_.query_columns())});
}

void GqaBlock::attention(uint32_t index,
                         const ops::AttentionBatch& batch,
                         const KvLayer& cache,
                         Rows<Bf16> residual,
                         std::span<std::byte> workspace,
                         ops::Parallel& parallel) const {
    const Layer& layer = layers_[index];
    const GqaActivations a(shape_, batch.num_tokens, workspace);
    const ops::GqaCache heads_cache = gqa_cache(cache, shape_);
    normalise(residual, layer.gamma_input, norm_epsilon_, a.x, parallel);
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
                                    .query = a.query,
                                    .batch = batch,
                                    .cache = heads_cache,
                                    .out = a.heads},
                                   a.operators,
                                   parallel));
    const ops::LinearInput heads = layer.o_proj.format() == ops::WeightFormat::kInt8
                                       ? ops::quantised_input(a.heads, a.operators, parallel)
                                       : ops::LinearInput(a.heads);
    ops::linear(heads, layer.o_proj, a.x, parallel);
    add_residual(residual, a.x, parallel);
}

}  // namespace afd::model
