// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionHalf: everything between two FFNs, for all layers: the attention block of the model's
// family, then the norm before the FFN and the router. The FFN itself (experts, shared experts,
// dense layers) is ops/fused_moe/, locally or through windows; its result comes back through
// add_residual() (model/attention/residual_steps.h).
//
//   residual --attention--> residual --pre_ffn--> x, topk_ids, topk_weights --FFN--> moe_out
//   residual + moe_out = residual of the next layer
//
// Rows are tokens of any mix of sequences; a row's bits depend on its token and the tokens before
// it in its sequence, never on the other rows (promise 1). Const and thread-safe; a workspace
// serves one call at a time. Nothing here allocates.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/attention/attention_block.h"
#include "model/attention/kv_cache.h"
#include "model/attention/residual_steps.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/decoder/router.h"
#include "model/family/model_files.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"

namespace afd::model {

class AttentionHalf;

// Scratch for rows_max rows, for attention() and pre_ffn() of any layer on num_threads threads (of
// the Parallel that they are called with).
struct AttentionWorkspace {
    AttentionWorkspace(const AttentionHalf& half, size_t rows_max, unsigned num_threads);

    size_t rows_max;
    ops::Workspace memory;
};

// Rows of a micro-batch and what the router says about them, as pre_ffn() leaves them.
struct FfnInput {
    ops::Rows<ops::Bf16> x;  // out [num_tokens, hidden]
    Routing routing;
    // out, with residual = fp32 and rows that others route: what the rounding of x left
    // (ops::SplitRows).
    ops::Rows<ops::Bf16> middle = {};
    ops::Rows<ops::Bf16> low = {};
};

// Whether the half routes rows, or leaves that to whoever holds the experts (router = ffn); the
// rows of hash layers always, since nobody else has their token ids. A half that was loaded to
// route may leave it for some rows.
enum class RouterUse { kRoute, kLeave };

// The cache that the model's attention needs.
KvShape kv_shape(const ModelConfig& config);

class AttentionHalf {
  public:
    // Loads and packs all layers. Errors: those of AttentionConfig::load() and Router::load().
    static Result<AttentionHalf> load(const ModelFiles& files,
                                      ops::NumericClass numeric_class,
                                      RouterUse router_use = RouterUse::kRoute);
    // These layers only, with their routers.
    static Result<AttentionHalf> load(const ModelFiles& files,
                                      ops::NumericClass numeric_class,
                                      LayerRange layers);

    const ModelConfig& config() const { return config_; }

    // AttentionBlock::attention() over the layer's part of the cache.
    // REQUIRES: a layer that was loaded; batch.num_tokens <= workspace.rows_max; a cache of
    // kv_shape(), of as many layers as were loaded.
    void attention(uint32_t layer,
                   const ops::AttentionBatch& batch,
                   const KvCache& cache,
                   const Residual& residual,
                   AttentionWorkspace& workspace,
                   ops::Parallel& parallel) const;

    // AttentionBlock::products_per_position().
    size_t products_per_position() const { return block_->products_per_position(); }

    // x = norm(residual); with a residual in fp32 the router sees it unrounded. If
    // is_routed(layer, use), also the routing: in an MoE layer the router's choice for each row (a
    // NaN in its scores: see is_poisoned()), in a dense layer slot 0 is expert 0 with weight 1 and
    // the other slots are masked. Otherwise the routing is left alone.
    void pre_ffn(uint32_t layer,
                 const ConstResidual& residual,
                 const FfnInput& out,
                 AttentionWorkspace& workspace,
                 ops::Parallel& parallel,
                 RouterUse use = RouterUse::kRoute) const;

    // Whether pre_ffn() says where the layer's rows go.
    bool is_routed(uint32_t layer, RouterUse use = RouterUse::kRoute) const {
        if (!config_.is_moe_layer(layer)) return true;
        return router_.routes(layer) && (use == RouterUse::kRoute || config_.is_hash_layer(layer));
    }

    // How many slots behind top_k the layer's rows use: 1 with shared experts, 0 in a dense layer.
    uint32_t num_shared(uint32_t layer) const;

    // Experts that the ids of the layer's rows count: num_experts, or 1 in a dense layer.
    uint32_t num_routed(uint32_t layer) const;

    // Bytes of a workspace for either call.
    size_t workspace_bytes(size_t rows_max, unsigned num_threads) const;

  private:
    AttentionHalf() = default;
    static Result<AttentionHalf> load(const ModelFiles& files,
                                      ops::NumericClass numeric_class,
                                      GateSet gates,
                                      LayerRange layers);
    void route_unrounded(uint32_t layer,
                         const ConstResidual& residual,
                         const FfnInput& out,
                         AttentionWorkspace& workspace,
                         ops::Parallel& parallel) const;

    ModelConfig config_;
    LayerRange layers_;
    std::unique_ptr<const AttentionBlock> block_;
    std::vector<NormTensors> ffn_norms_;  // [num_layers]; empty: not loaded.
    Router router_;                       // With RouterUse::kLeave of the hash layers only.
};

}  // namespace afd::model
