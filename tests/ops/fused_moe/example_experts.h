// SPDX-License-Identifier: Apache-2.0
#pragma once

// The worked example that docs/fused_moe.md names.

#include "ops/fused_moe/plan/registry.h"

namespace afd::ops::test {

extern const ExpertsEntry kExampleExperts;

}  // namespace afd::ops::test
