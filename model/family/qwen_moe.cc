// SPDX-License-Identifier: Apache-2.0
#include "model/family/qwen_moe.h"

#include <algorithm>
#include <array>
#include <memory>

#include "model/family/decoder_keys.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

// What config_1m.json of Qwen3-2507 adds: other positions, and attention to parts of a long text.
void refuse_sparse_attention(KeyReader& keys) {
    for (const char* key : {"dual_chunk_attention_config", "sparse_attention_config"}) {
        keys.refuse_if_given(key, "none; use the config.json of the release, not config_1m.json");
    }
}

// Of every decoder_sparse_step layers the last has experts, unless mlp_only_layers names it.
void read_dense_layers(KeyReader& keys, ModelConfig& config) {
    const uint32_t step = keys.count("decoder_sparse_step", 1, kLayersMax, 1);
    const std::vector<uint32_t> named = keys.indices("mlp_only_layers", config.num_layers);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const bool is_named = std::ranges::find(named, layer) != named.end();
        if (is_named || (layer + 1) % step != 0) config.dense_layers.push_back(layer);
    }
    config.intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
}

void read_qwen_experts(KeyReader& keys, ModelConfig& config) {
    read_dense_layers(keys, config);
    config.moe_intermediate = keys.count("moe_intermediate_size", 1, kDimensionMax, {});
    config.num_experts = read_num_experts(keys, "num_experts");
    read_softmax_router(keys, config, keys.flag("norm_topk_prob", false));
}

void read_qwen3(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_partial_rotation(keys);
    refuse_sparse_attention(keys);
    keys.refuse_unless("attention_bias", false);
    read_dimensions(keys, config);
    read_rope(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.qk_norm = QkNorm::kHeads;
    traits.windows = read_windows(keys, config, false);
    config.attention = std::make_shared<const GqaConfig>(traits);
    read_qwen_experts(keys, config);
}

void read_qwen2(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_partial_rotation(keys);
    refuse_sparse_attention(keys);
    read_dimensions(keys, config);
    read_rope(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.has_qkv_bias = keys.flag("qkv_bias", true);
    traits.windows = read_windows(keys, config, false);
    config.attention = std::make_shared<const GqaConfig>(traits);
    read_qwen_experts(keys, config);
    config.shared_intermediate =
        keys.count("shared_expert_intermediate_size", 1, kDimensionMax, {});
    config.names.shared_experts = "mlp.shared_expert";
    config.names.shared_gate = "mlp.shared_expert_gate";
}

constexpr std::array kQwenFamilies = {
    Family{"qwen2_moe", "Qwen2MoeForCausalLM", &read_qwen2},
    Family{"qwen3_moe", "Qwen3MoeForCausalLM", &read_qwen3},
};

}  // namespace

std::span<const Family> qwen_moe_families() {
    return kQwenFamilies;
}

}  // namespace afd::model
