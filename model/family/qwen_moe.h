// SPDX-License-Identifier: Apache-2.0
#pragma once

// Qwen3-MoE: grouped heads with a norm of each head of q and k, a softmax router, and MLPs in place
// of experts in the layers that decoder_sparse_step and mlp_only_layers name.

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> qwen_moe_families();

}  // namespace afd::model
