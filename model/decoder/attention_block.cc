// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/attention_block.h"

#include <algorithm>
#include <utility>

#include "ops/attention/mla_attention.h"
#include "ops/attention/mla_prolog.h"
#include "ops/attention/rms_norm.h"
#include "ops/linear/linear.h"
#include "ops/tensor/row_tasks.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ops::Rows;

// Activations of attention(), cut from the workspace.
struct Activations {
    Activations(const ModelConfig& config, size_t num_tokens, std::span<std::byte> bytes) {
        ops::WorkspaceCursor cursor(bytes);
        const auto take = [&](size_t columns) {
            return ops::make_rows(cursor.take<Bf16>(num_tokens * columns), num_tokens, columns);
        };
        x = take(config.hidden);
        query = take(size_t{config.num_heads} * config.kv_lora_rank);
        query_rope = take(size_t{config.num_heads} * config.qk_rope_head_dim);
        heads = take(size_t{config.num_heads} * config.v_head_dim);
    }

    static size_t bytes(const ModelConfig& config, size_t num_tokens) {
        const size_t per_head =
            size_t{config.kv_lora_rank} + config.qk_rope_head_dim + config.v_head_dim;
        const size_t columns = config.hidden + config.num_heads * per_head;
        constexpr size_t kNumArrays = 4;
        return num_tokens * columns * sizeof(Bf16) + kNumArrays * ops::kWorkspaceAlignment;
    }

    Rows<Bf16> x;           // Normalised input, later the block's output.
    Rows<Bf16> query;       // [num_tokens, heads * kv_lora_rank]
    Rows<Bf16> query_rope;  // [num_tokens, heads * rope dim]
    Rows<Bf16> heads;       // [num_tokens, heads * v_head_dim]
};

void norm(Rows<const Bf16> x,
          const std::vector<Bf16>& gamma,
          double epsilon,
          Rows<Bf16> y,
          ops::Parallel& parallel) {
    ops::for_rows(parallel, x.num_rows, x.num_cols, [&](size_t first, size_t last, unsigned) {
        ops::rms_norm(x.slice(first, last - first),
                      gamma.data(),
                      static_cast<float>(epsilon),
                      y.slice(first, last - first));
    });
}

void assert_ok(const Result<>& result) {
    AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
}

}  // namespace

AttentionWorkspace::AttentionWorkspace(const ModelConfig& config, size_t max, unsigned num_threads)
    : rows_max(max),
      rows(std::max(Activations::bytes(config, max),
                    Router::workspace_bytes(gating_attributes(config), max, num_threads))),
      operators(std::max(
          {ops::mla_prolog_workspace_bytes(mla_shape(config), max),
           ops::mla_attention_workspace_bytes(mla_shape(config), max, num_threads),
           ops::quantised_input_bytes(max, size_t{config.num_heads} * config.v_head_dim)})) {}

Result<AttentionBlock> AttentionBlock::load(const ModelFiles& files,
                                            ops::NumericClass numeric_class,
                                            RouterUse router_use) {
    AttentionBlock block;
    block.config_ = files.config();
    const GateSet gates = router_use == RouterUse::kRoute ? GateSet::kAll : GateSet::kHashLayers;
    AFD_ASSIGN(block.router_, Router::load(files, numeric_class, gates));
    AFD_ASSIGN(block.rope_, make_rope_table(block.config_));
    for (uint32_t layer = 0; layer < block.config_.num_layers; ++layer) {
        AFD_ASSIGN(auto weights, load_attention_layer(files, layer, numeric_class));
        block.layers_.push_back(std::move(weights));
    }
    return block;
}

void AttentionBlock::attention(uint32_t layer,
                               const ops::AttentionBatch& batch,
                               const KvCache& cache,
                               Rows<Bf16> residual,
                               AttentionWorkspace& workspace,
                               ops::Parallel& parallel) const {
    AFD_ASSERT(batch.num_tokens <= workspace.rows_max && residual.num_rows == batch.num_tokens,
               "%zu tokens, %zu rows, room for %zu",
               batch.num_tokens,
               residual.num_rows,
               workspace.rows_max);
    const AttentionLayerWeights& weights = layers_[layer];
    const Activations a(config_, batch.num_tokens, workspace.rows.bytes());
    const ops::LatentCache latent = cache.layer(layer);
    norm(residual, weights.gamma_input, config_.rms_norm_eps, a.x, parallel);
    assert_ok(ops::mla_prolog({.weights = &weights.mla,
                               .rope = &rope_,
                               .token_x = a.x,
                               .batch = batch,
                               .cache = latent,
                               .query = a.query,
                               .query_rope = a.query_rope,
                               .query_norm = {}},
                              workspace.operators.bytes(),
                              parallel));
    assert_ok(ops::mla_attention({.weights = &weights.mla,
                                  .query = a.query,
                                  .query_rope = a.query_rope,
                                  .batch = batch,
                                  .cache = latent,
                                  .out = a.heads},
                                 workspace.operators.bytes(),
                                 parallel));
    const ops::LinearInput heads =
        weights.o_proj.format() == ops::WeightFormat::kInt8
            ? ops::quantised_input(a.heads, workspace.operators.bytes(), parallel)
            : ops::LinearInput(a.heads);
    ops::linear(heads, weights.o_proj, a.x, parallel);
    add_residual(residual, a.x, parallel);
}

void AttentionBlock::pre_ffn(uint32_t layer,
                             Rows<const Bf16> residual,
                             const FfnInput& out,
                             AttentionWorkspace& workspace,
                             ops::Parallel& parallel) const {
    const AttentionLayerWeights& weights = layers_[layer];
    const size_t num_tokens = residual.num_rows;
    const size_t top_k = config_.top_k;
    AFD_ASSERT(num_tokens <= workspace.rows_max, "%zu rows", num_tokens);
    norm(residual, weights.gamma_post_attention, config_.rms_norm_eps, out.x, parallel);
    if (!config_.is_moe_layer(layer)) {
        for (size_t i = 0; i < num_tokens * top_k; ++i) {
            out.routing.topk_ids[i] = i % top_k == 0 ? 0 : -1;
            out.routing.topk_weights[i] = i % top_k == 0 ? 1.0f : 0.0f;
        }
    } else if (router_.routes(layer)) {
        router_.route(layer, out.x, out.routing, workspace.rows.bytes(), parallel);
    }
}

uint32_t AttentionBlock::num_shared(uint32_t layer) const {
    return config_.is_moe_layer(layer) ? config_.num_shared_slots() : 0;
}

uint32_t AttentionBlock::num_routed(uint32_t layer) const {
    return config_.is_moe_layer(layer) ? config_.num_experts : 1;
}

void add_residual(Rows<Bf16> residual, Rows<const Bf16> delta, ops::Parallel& parallel) {
    const auto add = [&](size_t first, size_t last, unsigned) {
        ops::residual_add(delta.slice(first, last - first), residual.slice(first, last - first));
    };
    ops::for_rows(parallel, residual.num_rows, residual.num_cols, add);
}

}  // namespace afd::model
