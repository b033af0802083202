// SPDX-License-Identifier: Apache-2.0
#include "model/family/olmoe.h"

#include <array>
#include <memory>

#include "model/family/decoder_keys.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

void read_olmoe(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_partial_rotation(keys);
    refuse_windows(keys);
    keys.refuse_unless("attention_bias", false);
    // What it means where a file leaves it out.
    config.rms_norm_eps = 1e-5;
    read_dimensions(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.qk_norm = QkNorm::kRow;
    if (keys.find("clip_qkv") != nullptr) traits.clip = keys.positive("clip_qkv", {});
    config.attention = std::make_shared<const GqaConfig>(traits);
    config.moe_intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.num_experts = read_num_experts(keys, "num_experts");
    read_softmax_router(keys, config, keys.flag("norm_topk_prob", false));
    read_rope(keys, config);
}

constexpr std::array kOlmoeFamilies = {
    Family{"olmoe", "OlmoeForCausalLM", &read_olmoe},
};

}  // namespace

std::span<const Family> olmoe_families() {
    return kOlmoeFamilies;
}

}  // namespace afd::model
