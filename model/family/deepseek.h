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

// The experts and their router, for families that took them over: n_routed_experts ...
// moe_layer_freq, mlp_layer_types, scoring_func ... topk_group. Absent keys mean what they do in V3
// or in V2; `usual_dense` layers come first without experts where the file does not say.
// REQUIRES: read_dimensions() before it.
void read_deepseek_experts(KeyReader& keys,
                           ModelConfig& config,
                           bool is_v3,
                           uint32_t usual_dense = 0);

}  // namespace afd::model
