// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stable counting sort of slots by expert key: the permute step of FfnWorkerBatching and of the
// grouped experts.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/grouped_ffn.h"

namespace afd::ops {

struct ExpertSort {
    size_t num_rows = 0;    // Slots with a key.
    size_t num_groups = 0;  // Distinct keys.
};

// Sorts the indices of `keys` ascending by key, equal keys by index; a negative key is left out.
// Writes order [num_rows] and the groups [num_groups], keys ascending.
// `next` is scratch of num_keys elements; order and groups have room for keys.size() and
// min(keys.size(), num_keys) elements. REQUIRES: keys below num_keys.
ExpertSort sort_by_expert(std::span<const int32_t> keys,
                          size_t num_keys,
                          int32_t* next,
                          int32_t* order,
                          ExpertGroup* groups);

}  // namespace afd::ops
