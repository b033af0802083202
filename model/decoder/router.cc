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

// logits = logits + the products with each part of a gate in turn.
// Shapes: products [num_tokens, num_parts · num_experts], logits [num_tokens, num_experts].
void add_products(ops::Rows<const float> products,
                  ops::Rows<float> logits,
                  ops::Parallel& parallel) {
    const size_t num_experts = logits.num_cols;
    const auto add = [&](size_t first, size_t last, unsigned) {
        for (size_t t = first; t < last; ++t) {
            float* sum = logits.row(t);
            for (size_t part = 0; part < products.num_cols; part += num_experts) {
                const float* product = products.row(t) + part;
                for (size_t e = 0; e < num_experts; ++e) sum[e] = sum[e] + product[e];
            }
        }
    };
    ops::for_rows(parallel, logits.num_rows, products.num_cols, add);
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
    for (const Gate& gate : gates) {
        AFD_ASSERT(gate.weight.num_outputs() % attributes.num_experts == 0,
                   "%zu outputs, %zu experts",
                   gate.weight.num_outputs(),
                   attributes.num_experts);
    }
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
            ops::make_rows<const ops::Bf16>(
                tensors.gate.data(), tensors.gate.size() / config.hidden, config.hidden),
            numeric_class);
        gates[layer].bias = std::move(tensors.bias);
        gates[layer].logit_bias = std::move(tensors.logit_bias);
        gates[layer].token_experts = std::move(tensors.token_experts);
    }
    return make(gating_attributes(config), std::move(gates));
}

size_t Router::workspace_bytes(size_t rows_max, unsigned num_threads, bool has_rest) const {
    size_t num_products = attributes_.num_experts;
    for (const Gate& gate : gates_) {
        num_products = std::max(num_products, gate.weight.num_outputs());
    }
    const size_t products_bytes = ops::workspace_bytes_of<float>(rows_max * num_products);
    return (has_rest ? 2 : 1) * products_bytes + num_threads * gating_bytes(attributes_);
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
    const ops::Rows<float> logits = multiply(gate, x, rest, cursor, parallel);
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

// Logits stay in fp32 (the specification, section 10): rounded to bf16, near ties would be decided
// otherwise than by the reference.
ops::Rows<float> Router::multiply(const Gate& gate,
                                  ops::Rows<const ops::Bf16> x,
                                  const RowRest& rest,
                                  ops::WorkspaceCursor& cursor,
                                  ops::Parallel& parallel) const {
    const size_t num_experts = attributes_.num_experts;
    const size_t num_products = gate.weight.num_outputs();
    const auto take_products = [&] {
        return ops::make_rows(
            cursor.take<float>(x.num_rows * num_products), x.num_rows, num_products);
    };
    const auto products = take_products();
    ops::linear_f32(x, gate.weight, products, parallel);
    // In the place of x·W0, to which the others are added.
    const ops::Rows<float> logits = products.columns(0, num_experts);
    if (num_products > num_experts) {
        add_products(products.columns(num_experts, num_products - num_experts), logits, parallel);
    }
    if (rest.middle.data == nullptr) return logits;
    const auto others = take_products();
    for (const auto& part : {rest.middle, rest.low}) {
        ops::linear_f32(part, gate.weight, others, parallel);
        add_products(others, logits, parallel);
    }
    return logits;
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
