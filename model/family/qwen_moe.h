// SPDX-License-Identifier: Apache-2.0
#pragma once

// Qwen2-MoE and Qwen3-MoE: grouped heads, a softmax router, and MLPs in place of experts in the
// layers that decoder_sparse_step and mlp_only_layers name. Qwen2 has biases of q, k and v and a
// shared expert behind a sigmoid gate, Qwen3 a norm of each head of q and k.

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> qwen_moe_families();

}  // namespace afd::model
