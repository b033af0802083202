// SPDX-License-Identifier: Apache-2.0
#include "model/family/glm4_moe.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/family/decoder_keys.h"
#include "model/family/deepseek.h"
#include "model/family/mixture_keys.h"
#include "model/family/rope_keys.h"
#include "model/gqa/gqa_config.h"

namespace afd::model {
namespace {

// Newer files have the factor among rope_parameters, some beside them, too.
size_t read_rotary_dim(KeyReader& keys, size_t head_dim) {
    const nlohmann::json* rope = keys.find("rope_parameters");
    const bool is_inside =
        keys.find("partial_rotary_factor") == nullptr && rope != nullptr && rope->is_object();
    const nlohmann::json none = nlohmann::json::object();
    KeyReader inner(is_inside ? *rope : none, keys.origin() + ": rope_parameters");
    KeyReader& from = is_inside ? inner : keys;
    const double dim = from.positive("partial_rotary_factor", 0.5) * static_cast<double>(head_dim);
    if (dim > static_cast<double>(head_dim) || std::fmod(dim, 2.0) != 0) {
        from.refuse(Code::kInvalidArgument,
                    "partial_rotary_factor",
                    fmt::format("a part of head_dim, {}, that is an even number", head_dim));
    }
    if (is_inside) keys.adopt(inner);
    // A refused number need not fit.
    return from.failed() ? head_dim : static_cast<size_t>(dim);
}

void read_glm4(KeyReader& keys, ModelConfig& config) {
    refuse_other_decoders(keys);
    refuse_windows(keys);
    // What it means where a file leaves it out.
    config.rms_norm_eps = 1e-5;
    read_dimensions(keys, config);
    GqaTraits traits = read_gqa_traits(keys, config.hidden);
    traits.rotary_dim = read_rotary_dim(keys, traits.shape.head_dim);
    // Of q, k and v: the output projection never has one.
    traits.has_qkv_bias = keys.flag("attention_bias", false);
    traits.qk_norm = keys.flag("use_qk_norm", false) ? QkNorm::kHeads : QkNorm::kNone;
    config.attention = std::make_shared<const GqaConfig>(traits);
    if (keys.failed()) return;
    read_deepseek_experts(keys, config, true);
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
