// SPDX-License-Identifier: Apache-2.0
#pragma once

// FirstUse: asked before the weights of experts are multiplied by. Those that are mapped from a
// file may have been neither read nor checked when serving begins
// (model/decoder/mapped_experts.h); those in memory of this process need nobody to ask.

#include <span>

#include "ops/tensor/parallel.h"

namespace afd::ops {

struct ExpertGroup;

class FirstUse {
  public:
    virtual ~FirstUse() = default;

    // Returns when the experts of all groups with rows may be used. REQUIRES: the keys have
    // experts; no other call is under way.
    virtual void before(std::span<const ExpertGroup> groups, Parallel& parallel) = 0;
};

}  // namespace afd::ops
