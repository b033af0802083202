// SPDX-License-Identifier: Apache-2.0
#include "tests/model/toy_family/toy_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "model/attention/residual_steps.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_names.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ops::Rows;

// The slot of a position: its key, [kv heads * dim], then its value.
Bf16* slot(const KvLayer& cache, int64_t index) {
    return reinterpret_cast<Bf16*>(cache.data + static_cast<size_t>(index) * cache.bytes_per_token);
}

const Bf16* slot_of(const KvLayer& cache, const int32_t* blocks, size_t position) {
    const size_t block = static_cast<size_t>(blocks[position / kKvBlockTokens]);
    return slot(cache, static_cast<int64_t>(block * kKvBlockTokens + position % kKvBlockTokens));
}

struct Activations {
    Activations(const ToyShape& shape, size_t num_tokens, std::span<std::byte> bytes)
        : cursor(bytes) {
        x = take(num_tokens, shape.hidden);
        query = take(num_tokens, shape.query_columns());
        key = take(num_tokens, shape.kv_columns());
        value = take(num_tokens, shape.kv_columns());
        heads = take(num_tokens, shape.query_columns());
    }

    static size_t bytes(const ToyShape& shape, size_t num_tokens) {
        const size_t columns = shape.hidden + 2 * shape.query_columns() + 2 * shape.kv_columns();
        return num_tokens * columns * sizeof(Bf16) + 5 * ops::kWorkspaceAlignment;
    }

    Rows<Bf16> take(size_t num_rows, size_t columns) {
        return ops::make_rows(cursor.take<Bf16>(num_rows * columns), num_rows, columns);
    }

    ops::WorkspaceCursor cursor;
    Rows<Bf16> x;
    Rows<Bf16> query;
    Rows<Bf16> key;
    Rows<Bf16> value;
    Rows<Bf16> heads;
};

}  // namespace

std::span<const ops::KvDtype> ToyAttention::kv_dtypes() const {
    static constexpr std::array kDtypes = {ops::KvDtype::kBf16};
    return kDtypes;
}

uint64_t ToyAttention::cache_bytes_per_token(ops::KvDtype /*dtype*/) const {
    return 2 * shape_.kv_columns() * sizeof(Bf16);
}

std::span<const ops::WeightFormat> ToyAttention::formats() const {
    static constexpr std::array kFormats = {ops::WeightFormat::kBf16};
    return kFormats;
}

std::vector<AttentionMatrix> ToyAttention::matrices(const ModelConfig& /*config*/,
                                                    uint32_t /*layer*/) const {
    return {};
}

Result<std::unique_ptr<AttentionBlock>> ToyAttention::load(const ModelConfig& config,
                                                           const TensorStore& tensors,
                                                           ops::NumericClass numeric_class,
                                                           LayerRange layers) const {
    AFD_ASSIGN(auto block, ToyBlock::load(config, shape_, tensors, numeric_class, layers));
    return std::unique_ptr<AttentionBlock>(std::move(block));
}

Result<std::unique_ptr<ToyBlock>> ToyBlock::load(const ModelConfig& config,
                                                 const ToyShape& shape,
                                                 const TensorStore& tensors,
                                                 ops::NumericClass numeric_class,
                                                 LayerRange layers) {
    auto block = std::make_unique<ToyBlock>();
    block->shape_ = shape;
    block->context_length_ = config.context_length;
    block->norm_epsilon_ = config.rms_norm_eps;
    AFD_ASSIGN(block->rope_,
               ops::RopeTable::make({.dim = shape.head_dim,
                                     .theta = config.rope_theta,
                                     .num_positions = config.context_length,
                                     .yarn = {}}));
    const std::array<uint64_t, 1> hidden = {shape.hidden};
    block->layers_.resize(config.num_layers);
    for (uint32_t index = layers.first; index < layers.last; ++index) {
        const auto packed =
            [&](const char* name, uint64_t outputs, uint64_t depth) -> Result<ops::PackedLinear> {
            AFD_ASSIGN(
                const StoredMatrix matrix,
                read_matrix(
                    tensors, layer_tensor(index, name), outputs, depth, ops::WeightFormat::kBf16));
            return matrix.packed(numeric_class);
        };
        Layer& layer = block->layers_[index];
        AFD_ASSIGN(layer.gamma,
                   tensors.read_bf16(layer_tensor(index, "input_layernorm.weight"), hidden));
        AFD_ASSIGN(layer.q, packed("self_attn.q_proj", shape.query_columns(), shape.hidden));
        AFD_ASSIGN(layer.k, packed("self_attn.k_proj", shape.kv_columns(), shape.hidden));
        AFD_ASSIGN(layer.v, packed("self_attn.v_proj", shape.kv_columns(), shape.hidden));
        AFD_ASSIGN(layer.o, packed("self_attn.o_proj", shape.hidden, shape.query_columns()));
    }
    return block;
}

size_t ToyBlock::workspace_bytes(size_t rows_max, unsigned num_threads) const {
    const size_t scratch = ops::workspace_bytes_of<float>(context_length_) +
                           ops::workspace_bytes_of<Bf16>(shape_.head_dim);
    return Activations::bytes(shape_, rows_max) + num_threads * scratch;
}

void ToyBlock::rotate(Bf16* row, size_t heads, int32_t position, Bf16* scratch) const {
    for (size_t h = 0; h < heads; ++h) {
        Bf16* head = row + h * shape_.head_dim;
        ops::rope(head, rope_, static_cast<size_t>(position), scratch);
        std::copy_n(scratch, shape_.head_dim, head);
    }
}

// Two passes in fp32, positions ascending: the same sums however the sequence came in.
void ToyBlock::attend(const Bf16* query,
                      size_t kv_head,
                      const int32_t* blocks,
                      size_t num_positions,
                      const KvLayer& cache,
                      float* scores,
                      Bf16* out) const {
    const size_t dim = shape_.head_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    float largest = -INFINITY;
    for (size_t p = 0; p < num_positions; ++p) {
        const Bf16* key = slot_of(cache, blocks, p) + kv_head * dim;
        float sum = 0;
        for (size_t i = 0; i < dim; ++i) sum += ops::to_float(query[i]) * ops::to_float(key[i]);
        scores[p] = sum * scale;
        largest = std::max(largest, scores[p]);
    }
    float total = 0;
    for (size_t p = 0; p < num_positions; ++p) total += scores[p] = std::exp(scores[p] - largest);
    for (size_t i = 0; i < dim; ++i) {
        float sum = 0;
        for (size_t p = 0; p < num_positions; ++p) {
            const Bf16* value = slot_of(cache, blocks, p) + shape_.kv_columns() + kv_head * dim;
            sum += scores[p] * ops::to_float(value[i]);
        }
        out[i] = ops::from_float(sum / total);
    }
}

void ToyBlock::attention(uint32_t index,
                         const ops::AttentionBatch& batch,
                         const KvLayer& cache,
                         const Residual& residual,
                         std::span<std::byte> workspace,
                         ops::Parallel& parallel) const {
    const Layer& layer = layers_[index];
    Activations a(shape_, batch.num_tokens, workspace);
    float* scores = a.cursor.take<float>(context_length_ * parallel.num_threads());
    Bf16* rotated = a.cursor.take<Bf16>(shape_.head_dim);
    normalise(residual, layer.gamma, norm_epsilon_, a.x, parallel);
    ops::linear(a.x, layer.q, a.query, parallel);
    ops::linear(a.x, layer.k, a.key, parallel);
    ops::linear(a.x, layer.v, a.value, parallel);
    // All of the batch's keys, before anybody looks back at them.
    for (size_t t = 0; t < batch.num_tokens; ++t) {
        rotate(a.query.row(t), shape_.num_heads, batch.positions[t], rotated);
        rotate(a.key.row(t), shape_.num_kv_heads, batch.positions[t], rotated);
        if (batch.cache_index[t] < 0) continue;
        Bf16* target = slot(cache, batch.cache_index[t]);
        std::copy_n(a.key.row(t), shape_.kv_columns(), target);
        std::copy_n(a.value.row(t), shape_.kv_columns(), target + shape_.kv_columns());
    }
    parallel.run(batch.num_tokens, [&](size_t t, unsigned thread) {
        const size_t group = shape_.num_heads / shape_.num_kv_heads;
        for (size_t h = 0; h < shape_.num_heads; ++h) {
            attend(a.query.row(t) + h * shape_.head_dim,
                   h / group,
                   batch.block_tables[t],
                   static_cast<size_t>(batch.positions[t]) + 1,
                   cache,
                   scores + thread * context_length_,
                   a.heads.row(t) + h * shape_.head_dim);
        }
    });
    ops::linear(a.heads, layer.o, a.x, parallel);
    add_residual(residual, a.x, parallel);
}

}  // namespace afd::model
