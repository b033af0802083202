// SPDX-License-Identifier: Apache-2.0
#include "model/family/deepseek.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/family/decoder_keys.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/mla/mla_config.h"

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

void read_scoring(KeyReader& keys, ModelConfig& config, const DeepseekDefaults& usual) {
    // dots.llm1 calls the scores by the method that takes them.
    const std::string scoring = keys.choice("scoring_func",
                                            usual.is_v3 ? "sigmoid" : "softmax",
                                            {"sigmoid", "softmax", "sqrtsoftplus", "noaux_tc"});
    config.scoring_func = scoring == "softmax"        ? ScoringFunc::kSoftmax
                          : scoring == "sqrtsoftplus" ? ScoringFunc::kSqrtSoftplus
                                                      : ScoringFunc::kSigmoid;
    const std::string method = keys.choice("topk_method",
                                           usual.is_v3 ? "noaux_tc" : "greedy",
                                           {"noaux_tc", "group_limited_greedy", "greedy"});
    config.topk_method = method == "noaux_tc" ? TopkMethod::kNoauxTc
                         : method == "greedy" ? TopkMethod::kGreedy
                                              : TopkMethod::kGroupLimitedGreedy;
    config.norm_topk_prob = keys.flag("norm_topk_prob", usual.norm_topk_prob);
    config.routed_scaling_factor = keys.positive("routed_scaling_factor", usual.scaling);
    // Greedy routing has no groups; files may name some all the same.
    if (config.topk_method == TopkMethod::kGreedy) return;
    config.num_groups = keys.count("n_group", 1, config.num_experts, usual.num_groups);
    config.topk_group = keys.count("topk_group", 1, config.num_groups, usual.topk_group);
    if (config.topk_group > config.num_groups) {
        keys.refuse(Code::kInvalidArgument,
                    "topk_group",
                    fmt::format("at most n_group, {}", config.num_groups));
    }
}

constexpr const char* kFirstDense = "first_k_dense_replace";
constexpr const char* kMoeFrequency = "moe_layer_freq";
constexpr const char* kLayerTypes = "mlp_layer_types";

// The dense ones that mlp_layer_types lists, as transformers 5 writes them.
std::vector<uint32_t> read_listed_layers(KeyReader& keys, uint32_t num_layers) {
    const nlohmann::json& types = *keys.find(kLayerTypes);
    std::vector<uint32_t> dense;
    bool is_good = types.is_array() && types.size() == num_layers;
    for (uint32_t layer = 0; is_good && layer < num_layers; ++layer) {
        if (types.at(layer) == "dense") dense.push_back(layer);
        is_good = types.at(layer) == "dense" || types.at(layer) == "sparse";
    }
    if (is_good) return dense;
    keys.refuse(Code::kInvalidArgument,
                kLayerTypes,
                fmt::format("a list of {} types, \"dense\" or \"sparse\"", num_layers));
    return {};
}

// `usual`: how many come first where the file does not say.
std::vector<uint32_t> read_deepseek_dense_layers(KeyReader& keys,
                                                 uint32_t num_layers,
                                                 uint32_t usual) {
    const uint32_t first_dense = keys.count(kFirstDense, 0, kLayersMax, usual);
    const uint32_t frequency = keys.count(kMoeFrequency, 1, kLayersMax, 1);
    std::vector<uint32_t> counted;
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        if (layer < first_dense || layer % frequency != 0) counted.push_back(layer);
    }
    if (keys.find(kLayerTypes) == nullptr) return counted;
    const std::vector<uint32_t> listed = read_listed_layers(keys, num_layers);
    const bool has_count = keys.find(kFirstDense) != nullptr;
    if ((has_count || frequency != 1) && listed != counted) {
        keys.refuse(Code::kInvalidArgument,
                    has_count ? kFirstDense : kMoeFrequency,
                    "what mlp_layer_types says, or null");
    }
    return listed;
}

void read_latent(KeyReader& keys, ModelConfig& config, const DeepseekDefaults& usual) {
    refuse_unserved(keys);
    read_dimensions(keys, config);
    config.attention = read_mla_config(keys, config.hidden);
    if (keys.failed()) return;
    read_deepseek_experts(keys, config, usual);
    read_rope(keys, config);
}

void read_deepseek_v2(KeyReader& keys, ModelConfig& config) {
    read_latent(keys, config, {.is_v3 = false, .norm_topk_prob = false, .num_shared = 2});
    // Programs differ in whether they do both.
    if (config.norm_topk_prob && config.routed_scaling_factor != 1) {
        keys.refuse(Code::kUnimplemented, "norm_topk_prob", "false, or routed_scaling_factor 1");
    }
}

void read_deepseek_v3(KeyReader& keys, ModelConfig& config) {
    read_latent(
        keys,
        config,
        {.num_dense = 3, .num_shared = 1, .num_groups = 8, .topk_group = 4, .scaling = 2.5});
}

void read_glm4_lite(KeyReader& keys, ModelConfig& config) {
    config.rms_norm_eps = 1e-5;
    read_latent(keys, config, {.num_dense = 1, .num_shared = 1, .scaling = 1.8});
}

constexpr std::array kFamilies = {
    Family{"deepseek_v2", "DeepseekV2ForCausalLM", &read_deepseek_v2},
    Family{"deepseek_v3", "DeepseekV3ForCausalLM", &read_deepseek_v3},
    // Behind it, which is the one that its architecture finds: a text_config may have no more than
    // this name.
    Family{"kimi_k2", "DeepseekV3ForCausalLM", &read_deepseek_v3},
    // GLM-4.7-Flash: DeepSeek-V3's decoder by another name.
    Family{"glm4_moe_lite", "Glm4MoeLiteForCausalLM", &read_glm4_lite},
};

}  // namespace

std::span<const Family> deepseek_families() {
    return kFamilies;
}

void read_deepseek_experts(KeyReader& keys, ModelConfig& config, const DeepseekDefaults& usual) {
    config.intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.moe_intermediate = keys.count("moe_intermediate_size", 1, kDimensionMax, {});
    config.num_experts = keys.count("n_routed_experts", 1, kExpertsMax, {});
    // In DeepSeek's own code null means that there are none.
    const uint32_t usual_shared = keys.is_null("n_shared_experts") ? 0 : usual.num_shared;
    config.shared_intermediate =
        keys.count("n_shared_experts", 0, 64, usual_shared) * config.moe_intermediate;
    config.top_k = keys.count("num_experts_per_tok", 1, kTopKMax, {});
    config.dense_layers = read_deepseek_dense_layers(keys, config.num_layers, usual.num_dense);
    config.num_hash_layers = keys.count("num_hash_layers", 0, config.num_layers, 0);
    read_scoring(keys, config, usual);
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
