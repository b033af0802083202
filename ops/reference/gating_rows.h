// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference routing; see ops/experts/gating_rows.h for the rules.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/experts/gating_rows.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

struct GatingOutput {
    Matrix weights;            // [T, top_k]
    std::vector<int32_t> ids;  // [T, top_k]
};

// Shapes: logits [T, num_experts], bias [num_experts] or empty. Scores and choices are rounded to
// fp32 before they are compared (ties are ties after fp32).
GatingOutput gating_rows(const GatingAttributes& attributes,
                         const Matrix& logits,
                         std::span<const float> bias);

// Of experts that are given, ids [T, top_k]; the result's ids are those.
GatingOutput gating_weights(const GatingAttributes& attributes,
                            const Matrix& logits,
                            std::span<const int32_t> ids);

}  // namespace afd::ops::reference
