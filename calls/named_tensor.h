// SPDX-License-Identifier: Apache-2.0
#pragma once

// NamedTensor: what a call of an operator by name is given, and what it gives.

#include <string_view>

#include "ops/tensor/tensor_view.h"

namespace afd::calls {

// A view of somebody else's memory and name: both outlive it. It checks nothing; OperatorCall does.
struct NamedTensor {
    // As the operator's record has it.
    std::string_view name;
    // Rank 0 is a scalar, which no operator takes: leave out what is not given. An output that is
    // asked for has a dtype and a shape, and no memory.
    ops::TensorView view;
};

}  // namespace afd::calls
