// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/attention_half.h"

#include <algorithm>
#include <utility>

#include "model/attention/attention_config.h"
#include "model/checkpoint/tensor_names.h"

namespace afd::model {

using ops::Bf16;
using ops::Rows;

AttentionWorkspace::AttentionWorkspace(const AttentionHalf& half, size_t max, unsigned num_threads)
    : rows_max(max), memory(half.workspace_bytes(max, num_threads)) {}

KvShape kv_shape(const ModelConfig& config) {
    return {
        .num_layers = config.num_layers,
        .layer_bytes_per_token = config.attention->cache_bytes_per_token(config.quantisation.kv)};
}

Result<AttentionHalf> AttentionHalf::load(const ModelFiles& files,
                                          ops::NumericClass numeric_class,
                                          RouterUse router_use) {
    const GateSet gates = router_use == RouterUse::kRoute ? GateSet::kAll : GateSet::kHashLayers;
    return load(files, numeric_class, gates, all_layers(files.config()));
}

Result<AttentionHalf> AttentionHalf::load(const ModelFiles& files,
                                          ops::NumericClass numeric_class,
                                          LayerRange layers) {
    return load(files, numeric_class, GateSet::kAll, layers);
}

Result<AttentionHalf> AttentionHalf::load(const ModelFiles& files,
                                          ops::NumericClass numeric_class,
                                          GateSet gates,
                                          LayerRange layers) {
    AttentionHalf half;
    const ModelConfig& config = half.config_ = files.config();
    half.layers_ = layers;
    AFD_ASSIGN(half.router_, Router::load(files, numeric_class, gates, layers));
    AFD_ASSIGN(half.block_, config.attention->load(config, files.tensors(), numeric_class, layers));
    half.ffn_norms_.resize(config.num_layers);
    for (uint32_t layer = layers.first; layer < layers.last; ++layer) {
        AFD_ASSIGN(half.ffn_norms_[layer],
                   read_norm(files.tensors(), config, layer_tensor(layer, config.names.ffn_norm)));
    }
    return half;
}

size_t AttentionHalf::workspace_bytes(size_t rows_max, unsigned num_threads) const {
    const bool is_fp32 = config_.residual == ResidualType::kFp32;
    const size_t rest_bytes =
        is_fp32 ? 2 * ops::workspace_bytes_of<Bf16>(rows_max * config_.hidden) : 0;
    // One memory for both: routing begins when the attention of the layer is done.
    return std::max(block_->workspace_bytes(rows_max, num_threads),
                    rest_bytes + router_.workspace_bytes(rows_max, num_threads, is_fp32));
}

void AttentionHalf::attention(uint32_t layer,
                              const ops::AttentionBatch& batch,
                              const KvCache& cache,
                              const Residual& residual,
                              AttentionWorkspace& workspace,
                              ops::Parallel& parallel) const {
    AFD_ASSERT(batch.num_tokens <= workspace.rows_max && residual.num_rows() == batch.num_tokens,
               "%zu tokens, %zu rows, room for %zu",
               batch.num_tokens,
               residual.num_rows(),
               workspace.rows_max);
    block_->attention(layer,
                      batch,
                      cache.layer(layer - layers_.first),
                      residual,
                      workspace.memory.bytes(),
                      parallel);
}

void AttentionHalf::pre_ffn(uint32_t layer,
                            const ConstResidual& residual,
                            const FfnInput& out,
                            AttentionWorkspace& workspace,
                            ops::Parallel& parallel,
                            RouterUse use) const {
    const size_t num_tokens = residual.num_rows();
    const size_t top_k = config_.top_k;
    AFD_ASSERT(num_tokens <= workspace.rows_max, "%zu rows", num_tokens);
    if (residual.is_fp32() && config_.is_moe_layer(layer)) {
        if (is_routed(layer, use))
            return route_unrounded(layer, residual, out, workspace, parallel);
        // Whoever routes needs what route_unrounded() would have had.
        AFD_ASSERT(out.middle.data != nullptr && out.low.data != nullptr, "layer %u", layer);
        return normalise(residual,
                         ffn_norms_[layer],
                         config_.rms_norm_eps,
                         ops::SplitRows{out.x, out.middle, out.low},
                         parallel);
    }
    normalise(residual, ffn_norms_[layer], config_.rms_norm_eps, out.x, parallel);
    if (!config_.is_moe_layer(layer)) {
        for (size_t i = 0; i < num_tokens * top_k; ++i) {
            // A dense layer is a layer with one expert that every token chooses, so it takes the
            // way of the others.
            out.routing.topk_ids[i] = i % top_k == 0 ? 0 : -1;
            out.routing.topk_weights[i] = i % top_k == 0 ? 1.0f : 0.0f;
        }
    } else if (is_routed(layer, use)) {
        router_.route(layer, out.x, out.routing, workspace.memory.bytes(), parallel);
    }
}

void AttentionHalf::route_unrounded(uint32_t layer,
                                    const ConstResidual& residual,
                                    const FfnInput& out,
                                    AttentionWorkspace& workspace,
                                    ops::Parallel& parallel) const {
    ops::WorkspaceCursor cursor(workspace.memory.bytes());
    const auto take = [&] {
        return ops::make_rows(cursor.take<Bf16>(residual.num_rows() * residual.num_cols()),
                              residual.num_rows(),
                              residual.num_cols());
    };
    const ops::SplitRows rows{.high = out.x, .middle = take(), .low = take()};
    normalise(residual, ffn_norms_[layer], config_.rms_norm_eps, rows, parallel);
    router_.route(layer,
                  out.x,
                  out.routing,
                  cursor.rest(),
                  parallel,
                  {.middle = rows.middle, .low = rows.low});
}

uint32_t AttentionHalf::num_shared(uint32_t layer) const {
    return config_.is_moe_layer(layer) ? config_.num_shared_slots() : 0;
}

uint32_t AttentionHalf::num_routed(uint32_t layer) const {
    return config_.is_moe_layer(layer) ? config_.num_experts : 1;
}

}  // namespace afd::model
