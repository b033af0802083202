// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeepSeek-V2 and V3, and the many that share their architecture (Moonlight, Kimi-K2, ...):
// multi-head latent attention, routed experts in groups, shared experts, some dense layers first.
//
// Keys that do not change the computation are ignored (training and parallelism settings,
// num_nextn_predict_layers: the extra prediction layers of a V3 checkpoint stay unused, as
// ModelFiles::unused_text() says).

#include <cstdint>
#include <span>

#include "model/checkpoint/config.h"
#include "model/family/family.h"
#include "model/json/key_reader.h"

namespace afd::model {

std::span<const Family> deepseek_families();

// What keys of the experts mean where a file leaves them out or has null for them.
struct DeepseekDefaults {
    bool is_v3 = true;           // scoring_func and topk_method of V3, or of V2.
    bool norm_topk_prob = true;  // Of weights; V2 leaves them as they are.
    uint32_t num_dense = 0;      // Layers without experts, which come first.
    uint32_t num_shared = 0;     // Shared experts.
    uint32_t num_groups = 1;     // Of experts.
    uint32_t topk_group = 1;     // Groups that a token may use.
    double scaling = 1.0;        // routed_scaling_factor.
};

// The experts and their router, for families that took them over: n_routed_experts ...
// moe_layer_freq, mlp_layer_types, scoring_func ... topk_group.
// REQUIRES: read_dimensions() before it.
void read_deepseek_experts(KeyReader& keys, ModelConfig& config, const DeepseekDefaults& usual);

}  // namespace afd::model
