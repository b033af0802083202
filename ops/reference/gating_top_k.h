// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference routing; see ops/experts/gating_top_k.h for the rules.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/experts/gating_top_k.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

struct GatingTopKOutput {
    Matrix weights;            // [T, top_k]
    std::vector<int32_t> ids;  // [T, top_k]
};

// Shapes: logits [T, num_experts], bias [num_experts] or empty. Scores and choices are rounded to
// fp32 before they are compared (ties are ties after fp32).
GatingTopKOutput gating_top_k(const GatingTopKAttributes& attributes,
                              const Matrix& logits,
                              std::span<const float> bias);

// Of experts that are given, ids [T, top_k]; the result's ids are those.
GatingTopKOutput gating_weights(const GatingTopKAttributes& attributes,
                                const Matrix& logits,
                                std::span<const int32_t> ids);

}  // namespace afd::ops::reference
