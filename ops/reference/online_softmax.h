// SPDX-License-Identifier: Apache-2.0
#pragma once

// The softmax of one token and head, and the rows that it weighs; shared by the references of
// attention.

#include <vector>

#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// Σ softmax(scores)_i · rows_i over positions 0 ... scores.size() - 1, before its rounding point.
// With kBf16 an online softmax over blocks of kAttentionBlock positions, each P rounded, because
// its running maximum decides how P rounds.
std::vector<double> online_softmax(const std::vector<double>& scores,
                                   const Matrix& rows,
                                   Rounding rounding);

}  // namespace afd::ops::reference
