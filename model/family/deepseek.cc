// SPDX-License-Identifier: Apache-2.0
#include "model/family/deepseek.h"

#include <fmt/core.h>

#include <array>
#include <string>

#include "model/family/decoder_keys.h"
#include "model/family/rope_keys.h"
#include "model/mla/mla_config.h"
#include "model/family/mixture_keys.h"

namespace afd::model {
namespace {

// Settings that would change the computation and that this decoder does not have.
void refuse_unserved(KeyReader& keys) {
    keys.refuse_unless("attention_bias", false);
    keys.refuse_unless("mlp_bias", false);
    keys.choice("hidden_act", "silu", {"silu"});
    keys.refuse_unless("rope_interleave", true);
    refuse_windows(keys);
    refuse_partial_rotation(keys);
}

void read_scoring(KeyReader& keys, ModelConfig& config, bool is_v3) {
    // dots.llm1 calls the scores by the method that takes them.
    const std::string scoring = keys.choice("scoring_func",
                                            is_v3 ? "sigmoid" : "softmax",
                                            {"sigmoid", "softmax", "sqrtsoftplus", "noaux_tc"});
    config.scoring_func = scoring == "softmax"        ? ScoringFunc::kSoftmax
                          : scoring == "sqrtsoftplus" ? ScoringFunc::kSqrtSoftplus
                                                      : ScoringFunc::kSigmoid;
    const std::string method = keys.choice("topk_method",
                                           is_v3 ? "noaux_tc" : "greedy",
                                           {"noaux_tc", "group_limited_greedy", "greedy"});
    config.topk_method = method == "noaux_tc" ? TopkMethod::kNoauxTc
                         : method == "greedy" ? TopkMethod::kGreedy
                                              : TopkMethod::kGroupLimitedGreedy;
    config.norm_topk_prob = keys.flag("norm_topk_prob", is_v3);
    config.routed_scaling_factor = keys.positive("routed_scaling_factor", 1.0);
    // Greedy routing has no groups; files may name some all the same.
    if (config.topk_method == TopkMethod::kGreedy) return;
    config.num_groups = keys.count("n_group", 1, config.num_experts, 1);
    config.topk_group = keys.count("topk_group", 1, config.num_groups, 1);
}

void read_deepseek(KeyReader& keys, ModelConfig& config) {
    refuse_unserved(keys);
    read_dimensions(keys, config);
    config.attention = read_mla_config(keys, config.hidden);
    if (keys.failed()) return;
    read_deepseek_experts(keys, config, config.model_type != "deepseek_v2");
    read_rope(keys, config);
}

constexpr std::array kFamilies = {
    Family{"deepseek_v2", "DeepseekV2ForCausalLM", &read_deepseek},
    Family{"deepseek_v3", "DeepseekV3ForCausalLM", &read_deepseek},
    // GLM-4.7-Flash: DeepSeek-V3's decoder by another name.
    Family{"glm4_moe_lite", "Glm4MoeLiteForCausalLM", &read_deepseek},
};

}  // namespace

std::span<const Family> deepseek_families() {
    return kFamilies;
}

void read_deepseek_experts(KeyReader& keys, ModelConfig& config, bool is_v3) {
    config.intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.moe_intermediate = keys.count("moe_intermediate_size", 1, kDimensionMax, {});
    config.num_experts = keys.count("n_routed_experts", 1, kExpertsMax, {});
    config.shared_intermediate = keys.count("n_shared_experts", 0, 64, 0) * config.moe_intermediate;
    config.top_k = keys.count("num_experts_per_tok", 1, kTopKMax, {});
    const uint32_t first_k_dense = keys.count("first_k_dense_replace", 0, kLayersMax, 0);
    const uint32_t moe_layer_freq = keys.count("moe_layer_freq", 1, kLayersMax, 1);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        if (layer >= first_k_dense && layer % moe_layer_freq == 0) continue;
        config.dense_layers.push_back(layer);
    }
    config.num_hash_layers = keys.count("num_hash_layers", 0, config.num_layers, 0);
    read_scoring(keys, config, is_v3);
    if (keys.failed()) return;
    if (config.num_experts % config.num_groups != 0) {
        keys.refuse(Code::kInvalidArgument,
                    "n_group",
                    fmt::format("a divisor of n_routed_experts, {}", config.num_experts));
    }
    // Experts of the groups that stay: more cannot be picked.
    const uint32_t eligible = config.num_experts / config.num_groups * config.topk_group;
    if (config.top_k > eligible) {
        keys.refuse(Code::kInvalidArgument,
                    "num_experts_per_tok",
                    fmt::format("at most the {} experts of topk_group groups", eligible));
    }
}

}  // namespace afd::model
