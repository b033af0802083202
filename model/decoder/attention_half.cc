// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/attention_half.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/attention/attention_config.h"
#include "model/checkpoint/tensor_names.h"

namespace afd::model {

using ops::Bf16;
using ops::Rows;

AttentionWorkspace::AttentionWorkspace(const AttentionHalf& half, size_t max, unsigned num_threads)
    : rows_max(max), memory(half.workspace_bytes(max, num_threads)) {}

KvShape kv_shape(const ModelConfig& config) {
    return {.num_layers = config.num_layers,
            .layer_bytes_per_token = config.attention->cache_bytes_per_token()};
}

Result<AttentionHalf> AttentionHalf::load(const ModelFiles& files,
                                          ops::NumericClass numeric_class,
                                          RouterUse router_use) {
    AttentionHalf half;
    const ModelConfig& config = half.config_ = files.config();
    const GateSet gates = router_use == RouterUse::kRoute ? GateSet::kAll : GateSet::kHashLayers;
    AFD_ASSIGN(half.router_, Router::load(files, numeric_class, gates));
    AFD_ASSIGN(half.block_, config.attention->load(config, files.tensors(), numeric_class));
    const std::array<uint64_t, 1> shape = {config.hidden};
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const std::string name = layer_tensor(layer, config.names.ffn_norm + ".weight");
        AFD_ASSIGN(auto gamma, files.tensors().read_bf16(name, shape));
        half.ffn_gammas_.push_back(std::move(gamma));
    }
    return half;
}

size_t AttentionHalf::workspace_bytes(size_t rows_max, unsigned num_threads) const {
    // One memory for both: routing begins when the attention of the layer is done.
    return std::max(block_->workspace_bytes(rows_max, num_threads),
                    Router::workspace_bytes(gating_attributes(config_), rows_max, num_threads));
}

void AttentionHalf::attention(uint32_t layer,
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
    block_->attention(
        layer, batch, cache.layer(layer), residual, workspace.memory.bytes(), parallel);
}

void AttentionHalf::pre_ffn(uint32_t layer,
                            Rows<const Bf16> residual,
                            const FfnInput& out,
                            AttentionWorkspace& workspace,
                            ops::Parallel& parallel) const {
    const size_t num_tokens = residual.num_rows;
    const size_t top_k = config_.top_k;
    AFD_ASSERT(num_tokens <= workspace.rows_max, "%zu rows", num_tokens);
    normalise(residual, ffn_gammas_[layer], config_.rms_norm_eps, out.x, parallel);
    if (!config_.is_moe_layer(layer)) {
        for (size_t i = 0; i < num_tokens * top_k; ++i) {
            // A dense layer is a layer with one expert that every token chooses, so it takes the
            // way of the others.
            out.routing.topk_ids[i] = i % top_k == 0 ? 0 : -1;
            out.routing.topk_weights[i] = i % top_k == 0 ? 1.0f : 0.0f;
        }
    } else if (router_.routes(layer)) {
        router_.route(layer, out.x, out.routing, workspace.memory.bytes(), parallel);
    }
}

uint32_t AttentionHalf::num_shared(uint32_t layer) const {
    return config_.is_moe_layer(layer) ? config_.num_shared_slots() : 0;
}

uint32_t AttentionHalf::num_routed(uint32_t layer) const {
    return config_.is_moe_layer(layer) ? config_.num_experts : 1;
}

}  // namespace afd::model
