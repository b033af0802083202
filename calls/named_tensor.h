// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "ops/tensor/tensor_view.h"

namespace afd::calls {

// A tensor of a call, by the name that the operator's record has for it.
struct NamedTensor {
    std::string_view name;
    // Rank 0 is a scalar, which no operator takes: leave out what is not given.
    ops::TensorView view;
};

}  // namespace afd::calls
