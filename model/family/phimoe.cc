// SPDX-License-Identifier: Apache-2.0
#include "model/family/phimoe.h"

#include <array>
#include <memory>

#include "model/family/decoder_keys.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

void read_sparsemixer(KeyReader& keys, ModelConfig& config) {
    read_block_sparse_moe(keys, config);
    if (config.top_k != 2) {
        keys.refuse(Code::kUnimplemented, "num_experts_per_tok", "2, with sparsemixer routing");
    }
    config.norm_topk_prob = false;
    config.mixer_jitter = keys.not_negative("router_jitter_noise", 0.01);
}

void read_phimoe(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_partial_rotation(keys);
    // What these mean where a file leaves them out.
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 1e6;
    read_dimensions(keys, config);
    // Left out it would mean 8 here, and not as many as heads.
    keys.count("num_key_value_heads", 1, kHeadsMax, {});
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.has_qkv_bias = traits.has_o_bias = keys.flag("attention_bias", false);
    traits.windows = read_windows(keys, config);
    config.attention = std::make_shared<const GqaConfig>(traits);
    config.has_norm_bias = true;
    config.has_head_bias = keys.flag("lm_head_bias", false);
    read_sparsemixer(keys, config);
    read_long_rope(keys, traits.rotary_dim, config);
}

// The release calls its architecture otherwise than transformers does.
constexpr std::array kPhimoeFamilies = {
    Family{"phimoe", "PhiMoEForCausalLM", &read_phimoe},
    Family{"phimoe", "PhimoeForCausalLM", &read_phimoe},
};

}  // namespace

std::span<const Family> phimoe_families() {
    return kPhimoeFamilies;
}

}  // namespace afd::model
