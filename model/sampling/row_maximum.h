// SPDX-License-Identifier: Apache-2.0
#pragma once

// The highest logit of a row, and whether the row has any that is no number.

#include <cstdint>
#include <span>

#include "proto/status.h"

namespace afd::model {

struct Maximum {
    uint32_t id = 0;
    float logit = 0;
};

// Of equal ones the lowest id.
// Errors: kInternal when a logit is NaN or +infinity, naming the first, or all are -infinity.
Result<Maximum> find_maximum(std::span<const float> logits);

}  // namespace afd::model
