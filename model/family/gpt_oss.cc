// SPDX-License-Identifier: Apache-2.0
#include "model/family/gpt_oss.h"

#include <fmt/core.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/family/decoder_keys.h"
#include "model/family/foreign_keys.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

// As files write it.
constexpr double kSwigluAlpha = 1.702;
static_assert(static_cast<float>(kSwigluAlpha) == ops::kSwigluOaiAlpha);

void refuse_unless_number(KeyReader& keys, const char* key, double served) {
    if (keys.positive(key, served) == served) return;
    keys.refuse(Code::kUnimplemented, key, fmt::format("{}", served));
}

// In which form the experts are stored.
void read_expert_form(KeyReader& keys, ModelConfig& config) {
    if (const nlohmann::json* object = keys.find("quantization_config")) {
        KeyReader inner(*object, keys.origin() + ": quantization_config");
        inner.choice("quant_method", "", {"mxfp4", "afd"}, kForeignRemedy);
        keys.adopt(inner);
    }
    // What afd-quantize has not made int8 or int4 it has left as it was.
    const ops::WeightFormat experts = config.quantisation.experts;
    const bool is_fused =
        experts == ops::WeightFormat::kBf16 || experts == ops::WeightFormat::kMxfp4;
    config.form.kind = is_fused ? ForeignKind::kFusedExperts : ForeignKind::kNone;
}

void read_gpt_oss(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_partial_rotation(keys);
    // What these mean where a file leaves them out.
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 150000;
    config.yarn = ops::YarnScaling{.factor = 32, .original_max_positions = 4096, .truncate = false};
    constexpr uint32_t kHeadDim = 64;
    read_dimensions(keys, config);
    read_rope(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden, kHeadDim);
    traits.has_qkv_bias = traits.has_o_bias = keys.flag("attention_bias", true);
    traits.has_sinks = true;
    keys.count("sliding_window", 1, 1u << 24, {});
    traits.windows = read_windows(keys, config);
    // Files may leave out the types where every second layer sees all positions.
    for (size_t i = 1; keys.find("layer_types") == nullptr && i < traits.windows.size(); i += 2) {
        traits.windows[i] = 0;
    }
    config.attention = std::make_shared<const GqaConfig>(traits);
    config.moe_intermediate = keys.count("intermediate_size", 1, kDimensionMax, {});
    config.num_experts = read_num_experts(keys, "num_local_experts");
    read_softmax_router(keys, config, true);
    config.activation = ops::ExpertActivation::kSwigluOai;
    refuse_unless_number(keys, "swiglu_alpha", kSwigluAlpha);
    refuse_unless_number(keys, "swiglu_limit", ops::kSwigluOaiLimit);
    config.has_expert_bias = true;
    config.names.router = "mlp.router";
    config.names.router_logit_bias = "mlp.router.bias";
    read_expert_form(keys, config);
}

constexpr std::array kGptOssFamilies = {
    Family{"gpt_oss", "GptOssForCausalLM", &read_gpt_oss},
};

}  // namespace

std::span<const Family> gpt_oss_families() {
    return kGptOssFamilies;
}

}  // namespace afd::model
