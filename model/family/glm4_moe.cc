// SPDX-License-Identifier: Apache-2.0
#include "model/family/glm4_moe.h"

#include <array>
#include <memory>

#include "model/family/decoder_keys.h"
#include "model/family/deepseek.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

void read_glm4(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_windows(keys);
    // What it means where a file leaves it out.
    config.rms_norm_eps = 1e-5;
    read_dimensions(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.rotary_dim = read_rotary_dim(keys, traits.shape.head_dim, traits.shape.head_dim / 2);
    // Of q, k and v: the output projection never has one.
    traits.has_qkv_bias = keys.flag("attention_bias", false);
    traits.qk_norm = keys.flag("use_qk_norm", false) ? QkNorm::kHeads : QkNorm::kNone;
    config.attention = std::make_shared<const GqaConfig>(traits);
    if (keys.failed()) return;
    read_deepseek_experts(keys, config, {.num_dense = 1, .num_shared = 1});
    read_rope(keys, config);
}

constexpr std::array kGlm4Families = {
    Family{"glm4_moe", "Glm4MoeForCausalLM", &read_glm4},
};

}  // namespace

std::span<const Family> glm4_moe_families() {
    return kGlm4Families;
}

}  // namespace afd::model
