// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeepSeek-V2 and V3, and the many that share their architecture (Moonlight, Kimi-K2, ...):
// multi-head latent attention, routed experts in groups, shared experts, some dense layers first.
//
// Keys that do not change the computation are ignored (training and parallelism settings,
// num_nextn_predict_layers: the extra prediction layers of a V3 checkpoint stay unused, as
// ModelFiles::unused_text() says).

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> deepseek_families();

}  // namespace afd::model
