// SPDX-License-Identifier: Apache-2.0
#pragma once

// OLMoE: a norm of the whole row of q and of k, clip_qkv, and experts in every layer.

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> olmoe_families();

}  // namespace afd::model
