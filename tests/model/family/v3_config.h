// SPDX-License-Identifier: Apache-2.0
#pragma once

// The config.json of DeepSeek-V3, which tests change one key at a time, and the refusal of one.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/family/config_file.h"

namespace afd::model {

inline nlohmann::json v3_config() {
    return {{"architectures", {"DeepseekV3ForCausalLM"}},
            {"model_type", "deepseek_v3"},
            {"vocab_size", 129280},
            {"hidden_size", 7168},
            {"num_hidden_layers", 61},
            {"max_position_embeddings", 163840},
            {"num_attention_heads", 128},
            {"num_key_value_heads", 128},
            {"q_lora_rank", 1536},
            {"kv_lora_rank", 512},
            {"qk_nope_head_dim", 128},
            {"qk_rope_head_dim", 64},
            {"v_head_dim", 128},
            {"intermediate_size", 18432},
            {"moe_intermediate_size", 2048},
            {"n_routed_experts", 256},
            {"n_shared_experts", 1},
            {"num_experts_per_tok", 8},
            {"n_group", 8},
            {"topk_group", 4},
            {"topk_method", "noaux_tc"},
            {"scoring_func", "sigmoid"},
            {"norm_topk_prob", true},
            {"routed_scaling_factor", 2.5},
            {"first_k_dense_replace", 3},
            {"moe_layer_freq", 1},
            {"hidden_act", "silu"},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000},
            {"rope_scaling",
             {{"type", "yarn"},
              {"factor", 40},
              {"beta_fast", 32},
              {"beta_slow", 1},
              {"mscale", 1.0},
              {"mscale_all_dim", 1.0},
              {"original_max_position_embeddings", 4096}}},
            {"attention_bias", false},
            {"tie_word_embeddings", false},
            {"num_nextn_predict_layers", 1},
            {"bos_token_id", 0},
            {"eos_token_id", 1}};
}

inline Error refusal(const nlohmann::json& config) {
    const auto result = parse_model_config(config.dump(), "config.json");
    EXPECT_FALSE(result.ok()) << config.dump();
    return result.ok() ? Error{Code::kOk, ""} : result.error();
}

}  // namespace afd::model
