// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelConfig: what a checkpoint's config.json says about a DeepSeek-V2 or V3 style decoder
// (multi-head latent attention, mixture of experts), checked and with defaults filled in.
//
// Not here: generation defaults (model/checkpoint/generation_config.h), tensors
// (model/checkpoint/safetensors.h).
//
// A configuration that this version cannot serve exactly is refused at load; the message names the
// key, its value and what is supported. Keys that do not change the computation are ignored
// (training and parallelism settings, num_nextn_predict_layers: the extra prediction layers of a
// V3 checkpoint stay unused).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attention/rope.h"
#include "ops/format/weight_format.h"
#include "proto/status.h"

namespace afd::model {

enum class ScoringFunc { kSoftmax, kSigmoid, kSqrtSoftplus };

enum class TopkMethod {
    kGreedy,              // Best top_k of all experts.
    kGroupLimitedGreedy,  // Groups by their best expert (V2).
    kNoauxTc,             // Groups by their two best; a bias that only chooses (V3).
};

// How the checkpoint stores its linears: quantization_config of tools/afd-quantize.
struct QuantisationConfig {
    ops::WeightFormat experts = ops::WeightFormat::kBf16;    // Routed, shared and dense MLPs.
    ops::WeightFormat attention = ops::WeightFormat::kBf16;  // bf16 or int8; q, kv_a and o.
    bool smooth = false;  // int8 experts have smooth scales (model/checkpoint/expert_tensors.h).

    friend bool operator==(const QuantisationConfig&, const QuantisationConfig&) = default;
};

// "bf16", "experts int8", "experts int8 smooth", "experts int4-g32, attention int8".
std::string describe(const QuantisationConfig& quantisation);

struct ModelConfig {
    std::string model_type;

    uint32_t vocab_size = 0;
    uint32_t hidden = 0;
    uint32_t num_layers = 0;
    uint32_t context_length = 0;  // max_position_embeddings, in tokens.

    uint32_t num_heads = 0;
    uint32_t q_lora_rank = 0;  // 0: the query is projected from the hidden row directly.
    uint32_t kv_lora_rank = 0;
    uint32_t qk_nope_head_dim = 0;
    uint32_t qk_rope_head_dim = 0;
    uint32_t v_head_dim = 0;

    uint32_t intermediate = 0;      // Width of a dense layer's MLP.
    uint32_t moe_intermediate = 0;  // Width of one routed expert.
    uint32_t num_experts = 0;       // Routed experts of an MoE layer.
    uint32_t num_shared_experts = 0;
    uint32_t top_k = 0;
    uint32_t num_groups = 1;
    uint32_t topk_group = 1;
    ScoringFunc scoring_func = ScoringFunc::kSigmoid;
    TopkMethod topk_method = TopkMethod::kNoauxTc;
    bool norm_topk_prob = false;
    double routed_scaling_factor = 1;
    uint32_t first_k_dense_replace = 0;
    uint32_t moe_layer_freq = 1;
    uint32_t num_hash_layers = 0;  // MoE layers below it look the experts up by token id.

    double rms_norm_eps = 1e-6;
    double rope_theta = 10000;
    std::optional<ops::YarnScaling> yarn;
    bool tie_word_embeddings = false;
    QuantisationConfig quantisation;

    std::optional<uint32_t> bos_token_id;
    std::vector<uint32_t> eos_token_ids;  // Of config.json; generation_config.json goes first.

    // Whether `layer` has experts; the others have one dense MLP.
    bool is_moe_layer(uint32_t layer) const {
        return layer >= first_k_dense_replace && layer % moe_layer_freq == 0;
    }

    // Whether the layer's experts stand in a table of token ids
    // (model/checkpoint/router_tensors.h).
    bool is_hash_layer(uint32_t layer) const {
        return is_moe_layer(layer) && layer < num_hash_layers;
    }

    // The shared experts of a layer are one MLP of this width; 0 if there are none.
    uint32_t shared_intermediate() const { return num_shared_experts * moe_intermediate; }

    // S of the window geometry: shared experts count as one expert in one slot.
    uint32_t num_shared_slots() const { return num_shared_experts > 0 ? 1 : 0; }

    uint32_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }

    // (qk_nope_head_dim + qk_rope_head_dim)^-1/2, times the square of YaRN's mscale for
    // mscale_all_dim.
    double softmax_scale() const;
};

// Limit of every single dimension: far above any model known, and small enough that products of
// three fit in 64 bits.
inline constexpr uint32_t kDimensionMax = 1u << 20;

// Reads the text of a config.json. `origin` (a path) starts every error message.
// Errors: kDataLoss (not JSON), kInvalidArgument (a key missing or out of range), kUnimplemented
// (a valid configuration that this version does not serve).
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& origin);

}  // namespace afd::model
