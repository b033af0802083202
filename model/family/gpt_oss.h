// SPDX-License-Identifier: Apache-2.0
#pragma once

// gpt-oss: grouped heads with biases and a sink each, windows in every second layer, a router with
// a bias whose weights are a softmax over the chosen, and experts with biases and a clamped
// activation, stored fused and in mxfp4 (model/foreign/fused_experts.h).

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> gpt_oss_families();

}  // namespace afd::model
