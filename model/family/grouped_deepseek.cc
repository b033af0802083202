// SPDX-License-Identifier: Apache-2.0
#include "model/family/grouped_deepseek.h"

#include <fmt/core.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/family/decoder_keys.h"
#include "model/family/deepseek.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

void read_grouped(KeyReader& keys,
                  ModelConfig& config,
                  QkNorm qk_norm,
                  const DeepseekDefaults& usual) {
    refuse_other_decoders(keys);
    refuse_windows(keys);
    refuse_partial_rotation(keys);
    keys.refuse_unless("attention_bias", false);
    read_dimensions(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.qk_norm = qk_norm;
    config.attention = std::make_shared<const GqaConfig>(traits);
    if (keys.failed()) return;
    read_deepseek_experts(keys, config, usual);
    read_rope(keys, config);
}

void read_deepseek_v1(KeyReader& keys, ModelConfig& config) {
    read_grouped(keys, config, QkNorm::kNone, {.is_v3 = false, .norm_topk_prob = false});
}

void read_dots1(KeyReader& keys, ModelConfig& config) {
    read_grouped(keys, config, QkNorm::kHeads, {.norm_topk_prob = false});
}

// Every layer has softmax attention; other kinds have other numbers.
void refuse_linear_attention(KeyReader& keys) {
    const nlohmann::json* types = keys.find("attn_type_list");
    if (types == nullptr) return;
    for (const nlohmann::json& type :
         types->is_array() ? *types : nlohmann::json::array({*types})) {
        if (type == 1) continue;
        return keys.refuse(Code::kUnimplemented, "attn_type_list", "1 for each layer");
    }
}

// Files of transformers 5 have partial_rotary_factor instead of rotary_dim; neither means half.
size_t read_minimax_rotary_dim(KeyReader& keys, size_t head_dim) {
    const auto whole = static_cast<uint32_t>(head_dim);
    const uint32_t stated = keys.count("rotary_dim", 2, whole, whole / 2);
    if (stated % 2 != 0) keys.refuse(Code::kInvalidArgument, "rotary_dim", "an even number");
    const size_t dim = read_rotary_dim(keys, head_dim, stated);
    if (keys.find("rotary_dim") != nullptr && dim != stated) {
        keys.refuse(Code::kInvalidArgument,
                    "rotary_dim",
                    fmt::format("{}, as partial_rotary_factor has it", dim));
    }
    return dim;
}

void read_minimax_m2(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_windows(keys);
    refuse_linear_attention(keys);
    keys.choice("qk_norm_type", "per_layer", {"per_layer"});
    keys.choice("scoring_func", "sigmoid", {"sigmoid"});
    keys.refuse_unless("use_routing_bias", true);
    if (keys.count("shared_intermediate_size", 0, kDimensionMax, 0) != 0) {
        keys.refuse(Code::kUnimplemented, "shared_intermediate_size", "0");
    }
    // What it means where a file leaves it out.
    config.rope_theta = 5e6;
    read_dimensions(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.rotary_dim = read_minimax_rotary_dim(keys, traits.shape.head_dim);
    traits.qk_norm = keys.flag("use_qk_norm", true) ? QkNorm::kRow : QkNorm::kNone;
    config.attention = std::make_shared<const GqaConfig>(traits);
    read_block_sparse_moe(keys, config);
    config.scoring_func = ScoringFunc::kSigmoid;
    config.topk_method = TopkMethod::kNoauxTc;
    config.names.router_bias = "block_sparse_moe.e_score_correction_bias";
    read_rope(keys, config);
}

constexpr std::array kGroupedFamilies = {
    Family{"deepseek", "DeepseekForCausalLM", &read_deepseek_v1},
    Family{"dots1", "Dots1ForCausalLM", &read_dots1},
    Family{"minimax_m2", "MiniMaxM2ForCausalLM", &read_minimax_m2},
};

}  // namespace

std::span<const Family> grouped_deepseek_families() {
    return kGroupedFamilies;
}

}  // namespace afd::model
