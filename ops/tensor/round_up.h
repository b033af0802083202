// SPDX-License-Identifier: Apache-2.0
#pragma once

// Quotients and multiples that are rounded up. Sizes of ops/ are far from the end of size_t.

#include <cstddef>

namespace afd::ops {

constexpr size_t div_up(size_t value, size_t by) {
    return (value + by - 1) / by;
}

constexpr size_t round_up(size_t value, size_t multiple) {
    return div_up(value, multiple) * multiple;
}

}  // namespace afd::ops
