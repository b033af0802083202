// SPDX-License-Identifier: Apache-2.0
#pragma once

// huge_vector: a vector for what is read from a file, in huge pages where it is long. Each is used
// once and freed, so it costs its page faults, which in pages of 4 KiB took longer than reading
// and packing (in a virtual machine, 1.3 GB of attention weights).

#include <cstddef>
#include <vector>

#include "ops/tensor/huge_pages.h"

namespace afd::model {

template <typename T>
std::vector<T> huge_vector(size_t count) {
    std::vector<T> values;
    values.reserve(count);
    ops::prefer_huge_pages(values.data(), count * sizeof(T));
    values.resize(count);
    return values;
}

}  // namespace afd::model
