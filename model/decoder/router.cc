// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/router.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/checkpoint/router_tensors.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/workspace.h"
#include "proto/check.h"

namespace afd::model {

namespace {

ops::GatingNorm norm_of(ScoringFunc scoring_func) {
    switch (scoring_func) {
        case ScoringFunc::kSoftmax:
            return ops::GatingNorm::kSoftmax;
        case ScoringFunc::kSigmoid:
            return ops::GatingNorm::kSigmoid;
        case ScoringFunc::kSqrtSoftplus:
            break;
    }
    return ops::GatingNorm::kSqrtSoftplus;
}

// What the score of an expert costs, in elements of ops/tensor/row_tasks.h: an exponential and its
// part in the choice.
constexpr size_t kElementsPerScore = 32;

// The scratch of one thread.
size_t gating_bytes(const ops::GatingAttributes& attributes) {
    return ops::workspace_round_up(ops::gating_rows_workspace_bytes(attributes));
}

bool is_in(GateSet set, bool is_hash_layer) {
    return set == GateSet::kAll || is_hash_layer == (set == GateSet::kHashLayers);
}

}  // namespace

ops::GatingAttributes gating_attributes(const ModelConfig& config) {
    std::optional<float> mixer_jitter;
    if (config.mixer_jitter) mixer_jitter = static_cast<float>(*config.mixer_jitter);
    return {.num_experts = config.num_experts,
            .top_k = config.top_k,
            .norm = norm_of(config.scoring_func),
            .n_group = config.num_groups,
            .topk_group = config.topk_group,
            .group_select_mode = config.topk_method == TopkMethod::kNoauxTc
                                     ? ops::GroupSelectMode::kSumOfTwoBest
                                     : ops::GroupSelectMode::kMax,
            .norm_topk_prob = config.norm_topk_prob,
            .routed_scaling_factor = static_cast<float>(config.routed_scaling_factor),
            .mixer_jitter = mixer_jitter};
}

Result<Router> Router::make(const ops::GatingAttributes& attributes, std::vector<Gate> gates) {
    AFD_TRY(ops::validate(attributes));
    Router router;
    router.attributes_ = attributes;
    router.gates_ = std::move(gates);
    return router;
}

Result<Router> Router::load(const ModelFiles& files, ops::NumericClass numeric_class, GateSet set) {
    return load(files, numeric_class, set, all_layers(files.config()));
}

Result<Router> Router::load(const ModelFiles& files,
                            ops::NumericClass numeric_class,
                            GateSet set,
                            LayerRange layers) {
    const ModelConfig& config = files.config();
    std::vector<Gate> gates(config.num_layers);
    for (uint32_t layer = layers.first; layer < layers.last; ++layer) {
        if (!config.is_moe_layer(layer) || !is_in(set, config.is_hash_layer(layer))) continue;
        AFD_ASSIGN(RouterTensors tensors, read_router_tensors(files.tensors(), config, layer));
        gates[layer].weight = ops::PackedLinear::pack(
            ops::make_rows<const ops::Bf16>(tensors.gate.data(), config.num_experts, config.hidden),
            numeric_class);
        gates[layer].bias = std::move(tensors.bias);
        gates[layer].logit_bias = std::move(tensors.logit_bias);
        gates[layer].token_experts = std::move(tensors.token_experts);
    }
    return make(gating_attributes(config), std::move(gates));
}

size_t Router::workspace_bytes(const ops::GatingAttributes& attributes,
                               size_t rows_max,
                               unsigned num_threads,
                               bool has_rest) {
    const size_t logits_bytes = ops::workspace_bytes_of<float>(rows_max * attributes.num_experts);
    return (has_rest ? 2 : 1) * logits_bytes + num_threads * gating_bytes(attributes);
}

void Router::route(uint32_t layer,
                   ops::Rows<const ops::Bf16> x,
                   const Routing& out,
                   std::span<std::byte> workspace,
                   ops::Parallel& parallel,
                   const RowRest& rest) const {
    AFD_ASSERT(routes(layer), "layer %u of %zu has no gate", layer, gates_.size());
    const Gate& gate = gates_[layer];
    ops::WorkspaceCursor cursor(workspace);
    const auto logits = ops::make_rows(cursor.take<float>(x.num_rows * attributes_.num_experts),
                                       x.num_rows,
                                       attributes_.num_experts);
    // Logits stay in fp32 (the specification, section 10): rounded to bf16, near ties would be
    // decided otherwise than by the reference.
    ops::linear_f32(x, gate.weight, logits, parallel);
    if (rest.middle.data != nullptr) {
        const auto product =
            ops::make_rows(cursor.take<float>(x.num_rows * attributes_.num_experts),
                           x.num_rows,
                           attributes_.num_experts);
        add_product(rest.middle, gate, product, logits, parallel);
        add_product(rest.low, gate, product, logits, parallel);
    }
    const std::span<std::byte> scratch = cursor.rest();
    const size_t scratch_bytes = gating_bytes(attributes_);
    const size_t row_elements = attributes_.num_experts * kElementsPerScore;
    ops::for_rows(
        parallel, x.num_rows, row_elements, [&](size_t first, size_t last, unsigned thread) {
            choose(gate,
                   logits.slice(first, last - first),
                   out.from(first, attributes_.top_k),
                   scratch.subspan(thread * scratch_bytes, scratch_bytes));
        });
}

void Router::add_product(ops::Rows<const ops::Bf16> x,
                         const Gate& gate,
                         ops::Rows<float> scratch,
                         ops::Rows<float> logits,
                         ops::Parallel& parallel) {
    ops::linear_f32(x, gate.weight, scratch, parallel);
    for (size_t t = 0; t < logits.num_rows; ++t) {
        float* sum = logits.row(t);
        for (size_t e = 0; e < logits.num_cols; ++e) sum[e] = sum[e] + scratch.row(t)[e];
    }
}

void Router::choose(const Gate& gate,
                    ops::Rows<float> logits,
                    const Routing& out,
                    std::span<std::byte> scratch) const {
    const size_t top_k = attributes_.top_k;
    for (size_t t = 0; !gate.logit_bias.empty() && t < logits.num_rows; ++t) {
        float* row = logits.row(t);
        for (size_t e = 0; e < logits.num_cols; ++e) row[e] = row[e] + gate.logit_bias[e];
    }
    const auto ids = ops::make_rows(out.topk_ids, logits.num_rows, top_k);
    const auto weights = ops::make_rows(out.topk_weights, logits.num_rows, top_k);
    if (gate.token_experts.empty()) {
        ops::gating_rows(attributes_, logits, gate.bias, weights, ids, scratch);
        return;
    }
    AFD_ASSERT(out.token_ids != nullptr, "a gate with %zu ids", gate.token_experts.size());
    for (size_t t = 0; t < logits.num_rows; ++t) {
        const auto token = static_cast<uint32_t>(out.token_ids[t]);
        // In size_t: the product of two 32-bit numbers could wrap below the bound.
        AFD_ASSERT((token + size_t{1}) * top_k <= gate.token_experts.size(), "token id %u", token);
        std::copy_n(&gate.token_experts[token * top_k], top_k, ids.row(t));
    }
    ops::gating_weights(attributes_, logits, ids, weights, scratch);
}

}  // namespace afd::model
