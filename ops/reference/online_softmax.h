// SPDX-License-Identifier: Apache-2.0
#pragma once

// The softmax of one token and head, and the rows that it weighs; shared by the references of
// attention.

#include <optional>
#include <vector>

#include "ops/reference/matrix.h"

namespace afd::ops::reference {

// Σ softmax(scores)_i · rows_(first + i) over scores.size() positions from `first` on, before its
// rounding point. With kBf16 an online softmax over blocks of kAttentionBlock absolute positions,
// each P rounded, because its running maximum decides how P rounds. A sink is a score more, before
// all others, whose row is zero.
std::vector<double> online_softmax(const std::vector<double>& scores,
                                   const Matrix& rows,
                                   Rounding rounding,
                                   size_t first = 0,
                                   std::optional<double> sink = {});

}  // namespace afd::ops::reference
