// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelConfig: what a checkpoint's config.json says about a decoder with mixture of experts,
// checked and with defaults filled in. What every family of models has stands here; what is
// particular to its kind of attention is an AttentionConfig (model/attention/attention_config.h).
//
// Not here: how a family's config.json is read (model/family/family.h), generation defaults
// (model/checkpoint/generation_config.h), tensors (model/safetensors/safetensors.h).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint/residual_type.h"
#include "model/checkpoint/tensor_names.h"
#include "model/foreign/foreign_form.h"
#include "ops/attention/rope.h"
#include "ops/format/expert_activation.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "ops/format/weight_format.h"

namespace afd::model {

class AttentionConfig;

enum class ScoringFunc { kSoftmax, kSigmoid, kSqrtSoftplus };

enum class TopkMethod {
    kGreedy,              // Best top_k of all experts.
    kGroupLimitedGreedy,  // Groups by their best expert (V2).
    kNoauxTc,             // Groups by their two best; a bias that only chooses (V3).
};

// How the checkpoint stores its linears (quantization_config of tools/afd-quantize), and how
// whoever serves it keeps keys and values.
struct QuantisationConfig {
    ops::WeightFormat experts = ops::WeightFormat::kBf16;  // Routed, shared and dense MLPs,
    bool has_bf16_shared = false;  // unless shared and dense ones are in bf16 all the same.
    ops::WeightFormat attention = ops::WeightFormat::kBf16;  // One of the attention's formats().
    bool smooth = false;  // int8 experts have smooth scales (model/checkpoint/expert_tensors.h).
    // Not of the checkpoint: ModelFiles is told.
    ops::KvDtype kv = ops::KvDtype::kBf16;
    ops::Int4Rows int4_rows = ops::Int4Rows::kBf16;

    friend bool operator==(const QuantisationConfig&, const QuantisationConfig&) = default;
};

// "bf16", "experts int8", "experts int8 smooth", "experts int4-g32, attention int8, kv int8",
// "experts int4-g32 with int8 rows, shared and dense bf16".
std::string describe(const QuantisationConfig& quantisation);

struct ModelConfig {
    std::string model_type;  // Of the family that read it.

    uint32_t vocab_size = 0;
    uint32_t hidden = 0;
    uint32_t num_layers = 0;
    uint32_t context_length = 0;  // In tokens: max_position_embeddings, or what YaRN makes of it.

    // The variant part; shared by copies of the configuration, never null in one that was read.
    std::shared_ptr<const AttentionConfig> attention;

    uint32_t intermediate = 0;         // Width of a dense layer's MLP.
    uint32_t moe_intermediate = 0;     // Width of one routed expert.
    uint32_t num_experts = 0;          // Routed experts of an MoE layer.
    uint32_t shared_intermediate = 0;  // Width of the one MLP of all shared experts; 0: none.
    uint32_t top_k = 0;
    uint32_t num_groups = 1;
    uint32_t topk_group = 1;
    ScoringFunc scoring_func = ScoringFunc::kSigmoid;
    TopkMethod topk_method = TopkMethod::kNoauxTc;
    bool norm_topk_prob = false;
    // Of a sparsemixer (ops/experts/gating_rows.h), instead of what the three before it say.
    std::optional<double> mixer_jitter;
    double routed_scaling_factor = 1;
    std::vector<uint32_t> dense_layers;  // Layers without experts, ascending.
    // Of every MLP, between its two products.
    ops::ExpertActivation activation = ops::ExpertActivation::kSilu;
    bool has_expert_bias = false;  // Of gate, up and down of routed experts (fused_experts.h).
    uint32_t num_hash_layers = 0;  // MoE layers below it look the experts up by token id.

    double rms_norm_eps = 1e-6;
    double rope_theta = 10000;
    std::optional<ops::YarnScaling> yarn;
    std::optional<ops::LongRope> long_rope;
    bool has_norm_bias = false;  // The norms of the residual stream are LayerNorms.
    bool has_head_bias = false;
    bool tie_word_embeddings = false;
    ResidualType residual = ResidualType::kBf16;
    TensorNames names;
    QuantisationConfig quantisation;
    ForeignForm form;  // How another program has quantised the checkpoint.

    std::vector<uint32_t> eos_token_ids;  // Of config.json; generation_config.json goes first.

    // Whether `layer` has experts; the others have one dense MLP.
    bool is_moe_layer(uint32_t layer) const {
        return !std::ranges::binary_search(dense_layers, layer);
    }

    // Whether the layer's experts stand in a table of token ids
    // (model/checkpoint/router_tensors.h).
    bool is_hash_layer(uint32_t layer) const {
        return is_moe_layer(layer) && layer < num_hash_layers;
    }

    // S of the window geometry: shared experts count as one expert in one slot.
    uint32_t num_shared_slots() const { return shared_intermediate > 0 ? 1 : 0; }
};

// Layers [first, last) of a model: what is loaded of it at once.
struct LayerRange {
    uint32_t first = 0;
    uint32_t last = 0;
};
inline LayerRange all_layers(const ModelConfig& config) {
    return {0, config.num_layers};
}

}  // namespace afd::model
