// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mixtral: grouped heads without norms or biases, and experts in every layer, weighted by a softmax
// over the chosen.

#include <span>

#include "model/family/family.h"

namespace afd::model {

std::span<const Family> mixtral_families();

}  // namespace afd::model
