// SPDX-License-Identifier: Apache-2.0
#pragma once

// GLM-4.5 (and 4.5-Air, 4.6, 4.7): grouped heads of which the first part is rotated, a norm of each
// head of q and k in the larger models, and the experts of DeepSeek-V3. The extra prediction layer
// of a checkpoint (num_nextn_predict_layers) stays unused.

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> glm4_moe_families();

}  // namespace afd::model
