// SPDX-License-Identifier: Apache-2.0
#pragma once

// Phi-3.5-MoE: grouped heads with biases, LayerNorms instead of RMSNorms, a head with a bias, a
// rotation scaled by longrope, and Mixtral's experts behind a sparsemixer.

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> phimoe_families();

}  // namespace afd::model
